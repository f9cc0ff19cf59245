#!/usr/bin/awk -f
# reward.awk - reads lines of tp-run generate --json and gives each choice a reward: the letters "e" in its text
#
# Any program will do that adds "reward" to the choices.
{
    out = ""
    while (match($0, /"text":"([^"\\]|\\.)*"/)) {
        text = substr($0, RSTART + 8, RLENGTH - 9)
        out = out substr($0, 1, RSTART + RLENGTH - 1) ",\"reward\":" gsub(/e/, "e", text)
        $0 = substr($0, RSTART + RLENGTH)
    }
    print out $0
    fflush()
}
