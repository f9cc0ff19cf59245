#!/usr/bin/env python3
"""make-learned.py [-o DIR] - which tokens of chats transformers would learn

learned.tar.gz: for each template of TEMPLATES, from tests/data/templates, NAME.jinja with {% generation %} around what the
assistant says, as EDITS put it there, NAME.marked: for each chat of `chats` the ids of
apply_chat_template(return_assistant_tokens_mask=True) by the tokenizer llama3.json there, "*" behind those that its mask has;
NAME.plain: the same for the template as it is, where an answer is what rendering one message more adds, with the offsets of the tokenizer,
or "error" where that is no beginning of the whole text.
"""
import argparse
import datetime
import gzip
import io
import json
import os
import tarfile

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils as ctu

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data", "templates")


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2024, 1, 1)


ctu.datetime = Clock
BEGIN, END = "{% generation %}", "{% endgeneration %}"
EDITS = {
    "Qwen-Qwen2.5-7B-Instruct": [(
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
        "{{- '<|im_start|>' + message.role + '\\n' }}{%- if message.role == 'assistant' %}" + BEGIN +
        "{{- message.content + '<|im_end|>' }}" + END + "{%- else %}{{- message.content + '<|im_end|>' }}{%- endif %}{{- '\\n' }}")],
    "Qwen-QwQ-32B": [(
        "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}",
        "{{- '<|im_start|>' + message.role + '\\n' }}" + BEGIN + "{{- content + '<|im_end|>' }}" + END + "{{- '\\n' }}")],
    "Qwen-Qwen3-0.6B": [
        ("{{- '<|im_start|>' + message.role + '\\n' + content }}",
         "{{- '<|im_start|>' + message.role + '\\n' }}" + BEGIN + "{{- content }}" + END),
        ("{{- '<|im_start|>' + message.role + '\\n<think>",
         "{{- '<|im_start|>' + message.role + '\\n' }}" + BEGIN + "{{- '<think>"),
        ("'\\n</think>\\n\\n' + content.lstrip('\\n') }}", "'\\n</think>\\n\\n' + content.lstrip('\\n') }}" + END)],
    "HuggingFaceTB-SmolLM3-3B": [(
        '{{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}',
        '{{ "<|im_start|>assistant\\n" }}' + BEGIN + '{{ "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}' + END),
        ('{{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}',
         '{{ "<|im_start|>assistant\\n" }}' + BEGIN + '{{ content.lstrip("\\n") + "<|im_end|>\\n" }}' + END)],
    "ibm-granite-granite-3.3-2B-Instruct": [(
        "'<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}",
        "'<|end_of_role|>' }}{%- if message['role'] == 'assistant' %}" + BEGIN + "{{- message['content'] + '<|end_of_text|>' }}" + END +
        "{%- else %}{{- message['content'] + '<|end_of_text|>' }}{%- endif %}{{- '\\n' }}")],
    "ibm-granite-granite-4.0": [(
        "{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val }}\n        {%- if message.tool_calls %}",
        "{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' }}" + BEGIN + "{{- content.val }}" + END +
        "\n        {%- if message.tool_calls %}")],
}


def chat(*pairs):
    return {"messages": [{"role": r, "content": c} for r, c in pairs]}


CHATS = [
    chat(("user", "Where is Ulm?"), ("assistant", "In Germany, on the Danube.")),
    chat(("system", "Be brief."), ("user", "Where is Ulm?"), ("assistant", "Germany."), ("user", "And Bonn?"), ("assistant", "Germany, too.")),
    chat(("user", "Grüße 時刻?"), ("assistant", "  \n時刻 — Größe 12345 unbelievably 😀"), ("user", "x"), ("assistant", "y z")),
    chat(("user", "a"), ("assistant", ""), ("user", "b")),
    chat(("user", "a"), ("assistant", "<think>\nwhy\n</think>\n\nb"), ("user", "c"), ("assistant", "<think>\nso\n</think>\n\nd")),
    chat(("user", "only a question")),
]


def stars(ids, mask):
    return " ".join(f"{i}{'*' if m else ''}" for i, m in zip(ids, mask))


def plain(tok, template, messages):
    def text(some, prompt=False):
        return tok.apply_chat_template(some, chat_template=template, tokenize=False, add_generation_prompt=prompt)
    whole = text(messages)
    spans = []
    for i, m in enumerate(messages):
        if m["role"] == "assistant":
            before, after = text(messages[:i], True), text(messages[:i + 1])
            if not (after.startswith(before) and whole.startswith(after)):
                return "error"
            spans.append((len(before), len(after)))
    out = tok(whole, add_special_tokens=False, return_offsets_mapping=True)
    return stars(out["input_ids"], [any(a < e and b > s for s, e in spans) for a, b in out["offset_mapping"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=data)
    args = parser.parse_args()
    files = {}
    with tarfile.open(os.path.join(data, "templates.tar.gz")) as tar:
        kept = {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}
    with open("/tmp/learned-tokenizer.json", "wb") as f:
        f.write(kept["llama3.json"])
    tok = PreTrainedTokenizerFast(tokenizer_file="/tmp/learned-tokenizer.json")
    os.unlink("/tmp/learned-tokenizer.json")
    files["chats"] = "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in CHATS)
    for name, edits in EDITS.items():
        template = kept[name + ".jinja"].decode()
        marked = template
        for old, new in edits:
            assert old in marked, (name, old)
            marked = marked.replace(old, new)
        files[name + ".jinja"] = marked
        lines = []
        for c in CHATS:
            out = tok.apply_chat_template(c["messages"], chat_template=marked, return_dict=True, return_assistant_tokens_mask=True)
            assert out["input_ids"] == tok.apply_chat_template(c["messages"], chat_template=template, return_dict=True)["input_ids"], name
            lines.append(stars(out["input_ids"], out["assistant_masks"]))
        files[name + ".marked"] = "".join(line + "\n" for line in lines)
        files[name + ".plain"] = "".join(plain(tok, template, c["messages"]) + "\n" for c in CHATS)
    with open(os.path.join(args.out, "learned.tar.gz"), "wb") as raw, \
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


if __name__ == "__main__":
    main()
