"""serve.py TP_RUN MODEL - the official openai client over all paths of tp-run serve

MODEL has a chat template, such as tests/data/chat.  Needs the packages openai and
prometheus_client; prints what was asked, and ends with status 1 at the first surprise."""
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import openai
from prometheus_client.parser import text_string_to_metric_families


def check(what, good):
    print("ok" if good else "NOT OK", "-", what, flush=True)
    if not good:
        sys.exit(1)


def fails(kind, code, param, call):
    try:
        call()
    except kind as e:
        return e.code == code and e.param == param
    return False


tp_run, model = sys.argv[1:]
with subprocess.Popen([tp_run, "serve", "--backend", "cpu", "--listen", "127.0.0.1:0",
                       "--served-name", "m", model], stdout=subprocess.PIPE,
                      text=True, env={"SHARDUTILS_API_KEY": "key"}) as server:
    try:
        url = json.loads(server.stdout.readline())["url"]
        c = openai.OpenAI(base_url=url + "/v1", api_key="key", max_retries=0)
        print("openai", openai.__version__)
        hello = [{"role": "user", "content": "Hello"}]
        check("models", [m.id for m in c.models.list()] == ["m"] and c.models.retrieve("m").id == "m")
        chat = c.chat.completions.create(model="m", messages=hello, temperature=0)
        text = chat.choices[0].message.content
        check("a chat", text and chat.choices[0].finish_reason == "stop" and chat.usage.completion_tokens > 1)
        chunks = list(c.chat.completions.create(model="m", messages=hello, temperature=0, stream=True,
                                                stream_options={"include_usage": True}))
        check("the same in a stream", "".join(k.choices[0].delta.content or "" for k in chunks if k.choices) == text)
        check("its usage", chunks[-1].usage.completion_tokens == chat.usage.completion_tokens)
        check("its role, and why it ended", chunks[0].choices[0].delta.role == "assistant"
              and chunks[-2].choices[0].finish_reason == "stop")
        with c.chat.completions.stream(model="m", messages=hello, temperature=0) as stream:
            check("the client's own stream", stream.get_final_completion().choices[0].message.content == text)
        check("parts of a message", c.chat.completions.create(
            model="m", temperature=0, messages=[{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
        ).choices[0].message.content == text)
        made = c.responses.create(model="m", input="Hello", temperature=0)
        check("a response", made.output_text == text and made.status == "completed"
              and made.usage.output_tokens == chat.usage.completion_tokens)
        events = list(c.responses.create(model="m", input=[{"role": "user", "content": "Hello"}], temperature=0,
                                         max_output_tokens=3, stream=True))
        check("its events", [e.sequence_number for e in events] == list(range(len(events)))
              and "".join(e.delta for e in events if e.type == "response.output_text.delta") == text[:3]
              and events[-1].type == "response.incomplete"
              and events[-1].response.incomplete_details.reason == "max_output_tokens")
        with c.responses.stream(model="m", input="Hello", temperature=0) as stream:
            check("the client's own stream of them", stream.get_final_response().output_text == text)
        for name, value in [("previous_response_id", "resp_1"), ("store", True), ("text", {"format": {"type": "json_object"}})]:
            check(name + " of a response", fails(openai.BadRequestError, "unsupported_parameter", name,
                                                 lambda: c.responses.create(model="m", input="x", **{name: value})))
        two = c.completions.create(model="m", prompt=["Hello", "x"], n=2, max_tokens=5, seed=1)
        again = c.completions.create(model="m", prompt=["Hello", "x"], n=2, max_tokens=5, seed=1)
        check("several prompts and choices", len(two.choices) == 4)
        check("a seed", [x.text for x in two.choices] == [x.text for x in again.choices])
        check("a stop", "y" not in c.completions.create(model="m", prompt="Hello", seed=1, max_tokens=60,
                                                        stop=["y"]).choices[0].text)
        check("vLLM's parameters", c.completions.create(
            model="m", prompt="Hello", max_tokens=40, extra_body={"top_k": 1, "ignore_eos": True}
        ).usage.completion_tokens == 40)
        ones = dict(model="m", prompt="Hello", max_tokens=30, seed=5, extra_body={"ignore_eos": True})
        told = c.completions.create(**ones, logprobs=3).choices[0]
        alone = json.loads(subprocess.run(
            [tp_run, "generate", "--backend", "cpu", "--json", "--ignore-eos", "--seed", "5", "--temperature", "1",
             "--max-tokens", "30", "--logprobs", "3", "--prompt", "Hello", model], stdout=subprocess.PIPE,
            check=True).stdout)["logprobs"]
        check("log-probabilities of a completion", told.logprobs.token_logprobs == [t["logprob"] for t in alone]
              and told.logprobs.tokens == [t["token"] for t in alone]
              and "".join(t for t in told.logprobs.tokens if not t.startswith("<|")) == told.text
              and all(len(top) in (2, 3, 4) for top in told.logprobs.top_logprobs)
              and all(top[x["token"]] >= x["logprob"] for top, t in zip(told.logprobs.top_logprobs, alone)
                      for x in t["top"]))
        check("text_offset", all(told.text[at:].startswith(t)
                                 for at, t in zip(told.logprobs.text_offset, told.logprobs.tokens)
                                 if not t.startswith("<|")))
        content = c.chat.completions.create(model="m", messages=hello, temperature=0, logprobs=True,
                                            top_logprobs=2, max_tokens=6).choices[0].logprobs.content
        check("those of a chat", len(content) == 6 and all(
            t.logprob == t.top_logprobs[0].logprob and len(t.top_logprobs) == 2
            and bytes(t.bytes) == t.token.encode() for t in content))
        parts = [t for k in c.chat.completions.create(model="m", messages=hello, temperature=0, logprobs=True,
                                                      top_logprobs=2, max_tokens=6, stream=True)
                 if k.choices and k.choices[0].logprobs for t in k.choices[0].logprobs.content]
        check("in a stream", parts == content or [t.model_dump() for t in parts] == [t.model_dump() for t in content])
        plain = c.completions.create(**ones).choices[0].text
        for name, value in [("presence_penalty", 2), ("frequency_penalty", 2),
                            ("logit_bias", {str(alone[0]["id"]): -100})]:
            check(name, c.completions.create(**ones, **{name: value}).choices[0].text != plain)
        for name, value in [("repetition_penalty", 3), ("min_p", 0.3), ("typical_p", 0.3), ("bad_words", ["e", "o"])]:
            check(name, c.completions.create(**{**ones, "extra_body": {"ignore_eos": True, name: value}}
                                             ).choices[0].text != plain)
        check("echo", c.completions.create(**ones, echo=True).choices[0].text == "Hello" + plain)
        for name in "reasoning_effort", "verbosity":
            check(name + " is refused", fails(
                openai.BadRequestError, "unsupported_parameter", name,
                lambda: c.chat.completions.create(model="m", messages=hello, **{name: "low"})))
        check("another model", fails(openai.NotFoundError, "model_not_found", "model",
                                     lambda: c.chat.completions.create(model="x", messages=hello)))
        check("a parameter that is not supported", fails(
            openai.BadRequestError, "unsupported_parameter", "web_search_options",
            lambda: c.chat.completions.create(model="m", messages=hello, web_search_options={"x": 1})))
        check("too many tokens", fails(openai.BadRequestError, "context_length_exceeded", "max_tokens",
                                       lambda: c.completions.create(model="m", prompt="x", max_tokens=10**6)))
        check("another key", fails(openai.AuthenticationError, "invalid_api_key", None,
                                   lambda: openai.OpenAI(base_url=url + "/v1", api_key="k").models.list()))

        def ask(i):
            return c.completions.create(model="m", prompt="x" * (i % 7 + 1), max_tokens=20 + i, seed=i,
                                        temperature=i % 3, extra_body={"ignore_eos": True}).choices[0].text

        alone = [ask(i) for i in range(64)]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            check("64 clients at a time", list(pool.map(ask, range(64))) == alone)
        raw = c.get(url + "/metrics", cast_to=str)
        samples = {s.name: s.value for f in text_string_to_metric_families(raw) for s in f.samples}
        check("metrics that Prometheus' parser reads", samples["vllm:num_requests_running"] == 0
              and samples["vllm:generation_tokens_total"] > 64 * 20)
        server.terminate()
        check("SIGTERM", server.wait(60) == 0)
    finally:
        server.kill()

with subprocess.Popen([tp_run, "serve", "--backend", "cpu", "--listen", "127.0.0.1:0", "--task", "embed",
                       "--served-name", "m", model], stdout=subprocess.PIPE, text=True, env={}) as server:
    try:
        c = openai.OpenAI(base_url=json.loads(server.stdout.readline())["url"] + "/v1", api_key="x", max_retries=0)
        alone = json.loads(subprocess.run([tp_run, "embed", "--backend", "cpu", "--json", "-p", "Hello", model],
                                          stdout=subprocess.PIPE, check=True).stdout)["embedding"]

        def near(a, b):
            return len(a) == len(b) and all(abs(x - y) < 1e-5 for x, y in zip(a, b))

        check("embeddings, which the client asks for as base64", near(
            c.embeddings.create(model="m", input="Hello").data[0].embedding, alone))
        check("as lists", near(c.embeddings.create(model="m", input="Hello", encoding_format="float").data[0].embedding, alone))
        many = c.embeddings.create(model="m", input=["x" * (i % 5 + 1) for i in range(300)] + ["Hello"], dimensions=7)
        check("many of few dimensions", len(many.data) == 301 and near(many.data[300].embedding, alone[:7])
              and [d.index for d in many.data] == list(range(301)))
    finally:
        server.kill()


# a model whose answer to Hello is a call, after a thought
TEMPLATE = """{%- if false %}<tool_call></think>{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
with tempfile.TemporaryDirectory() as dir:
    shutil.copytree(model, dir, dirs_exist_ok=True, ignore=shutil.ignore_patterns("chat_template*"))
    tokenizer = json.loads(pathlib.Path(model, "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab['<think>hm</think><tool_call>{"name":"f","arguments":{"x":"'] = vocab.pop("G")
    vocab['"}}</tool_call>'] = vocab.pop(".")
    pathlib.Path(dir, "tokenizer.json").write_text(json.dumps(tokenizer))
    pathlib.Path(dir, "chat_template.jinja").write_text(TEMPLATE)
    with subprocess.Popen([tp_run, "serve", "--backend", "cpu", "--listen", "127.0.0.1:0", "--served-name", "m", dir],
                          stdout=subprocess.PIPE, text=True, env={}) as server:
        try:
            c = openai.OpenAI(base_url=json.loads(server.stdout.readline())["url"] + "/v1", api_key="x", max_retries=0)
            tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
            ask = dict(model="m", messages=hello, temperature=0, tools=tools)
            said = c.chat.completions.create(**ask).choices[0]
            call = said.message.tool_calls[0]
            check("a call of a tool", said.finish_reason == "tool_calls" and said.message.content is None
                  and call.function.name == "f" and json.loads(call.function.arguments) == {"x": "ood day to you"})
            check("a thought", said.message.reasoning_content == "hm")
            ask2 = dict(model="m", temperature=0, tools=[{"type": "function", "name": "f", "parameters": {"type": "object"}}])
            made = c.responses.create(input="Hello", **ask2)
            kinds = [i.type for i in made.output]
            check("a response of both", kinds == ["reasoning", "function_call"] and made.output[1].name == "f"
                  and json.loads(made.output[1].arguments) == {"x": "ood day to you"})
            with c.responses.stream(input="Hello", **ask2) as stream:
                check("in a stream", [i.type for i in stream.get_final_response().output] == kinds)
            again = [{"role": "user", "content": "Hello"}, *made.output,
                     {"type": "function_call_output", "call_id": made.output[1].call_id, "output": "noon"}]
            check("and what follows it", c.responses.create(input=again, **ask2).usage.input_tokens > made.usage.input_tokens)
            with c.chat.completions.stream(**ask) as stream:
                whole = stream.get_final_completion().choices[0]
            check("both in the client's own stream", whole.finish_reason == "tool_calls"
                  and whole.message.tool_calls[0].function.arguments == call.function.arguments)
        finally:
            server.kill()
