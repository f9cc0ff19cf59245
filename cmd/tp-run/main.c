/* tp-run - runs a model on many ranks */
#include "cmd/cmd.h"
#include "cmd/tp-run/commands.h"

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "generate", "continue text", generate_main },
        { "chat", "converse with a model", chat_main },
        { "serve", "answer requests over HTTP", serve_main },
        { "load", "measure a server", load_main },
        { "score", "negative log-likelihood and perplexity of text", score_main },
        { "classify", "label texts, tokens or answers", classify_main },
        { "embed", "vectors of texts", embed_main },
        { "train", "train a model", train_main },
        { "plot", "draw the losses of trainings", plot_main },
        { "bench", "measure the machine at hand with a model", bench_main },
        { "logits", "write the outputs for some tokens", logits_main },
        { "tokens", "print the tokens of texts, or write them for training",
          tokens_main },
        { "tokenize", NULL, tokens_main },
        { "detokenize", "print the text of token ids", detokenize_main },
        { "program", "print the instructions that a model is compiled to",
          program_main },
        { "devices", "print what a model can be run on here", devices_main },
        { 0 },
    };
    const struct cmd cmd = { .name = "tp-run",
                             .synopsis = "COMMAND [OPTION]... CHECKPOINT",
                             .summary = "Run a transformer model on many ranks",
                             .subs = subs,
                             .usual = "generate" };

    cmd_say_signals("tp-run");
    return cmd_dispatch(&cmd, argc, argv);
}
