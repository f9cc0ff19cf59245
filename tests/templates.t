#!/bin/sh
# templates.t - chat templates
. "$top_srcdir/tests/lib.sh"
render=$top_builddir/tests/render-template

# case_of TEMPLATE CASE - what the chat CASE becomes by TEMPLATE
case_of() {
    printf '%s' "$1" > template.jinja
    printf '%s\n' "$2" > case
    run "$render" template.jinja case
}

case_of '{% for m in messages %}
    {%- if m.role == "user" -%} <u>{{ m.content|trim }}</u>
    {% elif loop.last %}{{ m["content"][::-1] }}{% endif %}
{% endfor %}' '{"messages":[{"role":"user","content":" a "},{"role":"x","content":"bc"}]}'
out_is '{"text":"<u>a</u>\ncb"}' "a template is run over the messages of a chat"

case_of '{{ messages[0].content }}
{% include "x" %}' '{"messages":[{"role":"user","content":"a"}]}'
status_is 3 "a tag outside the subset is refused"
err_is "render-template: template.jinja:2: the tag {% include %} is not supported" "the error names it and its line"

done_testing
