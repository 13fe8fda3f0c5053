#!/usr/bin/env python3
"""Random Jinja snippets and what Python's jinja2 makes of them, one JSON object a line.

  jinja_snippets.py SEED COUNT      {"template", "vars", "text"} or {"template", "vars", "error": kind}

The environment is that of Hugging Face transformers. Snippets whose text holds an address of an object, or that
take the reference too long, are left out. Exits with 77 when jinja2 is not installed.
"""
import datetime
import json
import random
import re
import signal
import sys

try:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

NOW = datetime.datetime(2025, 7, 26, 9, 5, 7)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


def outcome(env, source, variables):
    try:
        return "text", env.from_string(source).render(**variables)
    except jinja2.exceptions.TemplateSyntaxError:
        return "error", "syntax"
    except jinja2.exceptions.UndefinedError:
        return "error", "undefined"
    except jinja2.exceptions.SecurityError:
        return "error", "security"
    except jinja2.exceptions.TemplateError as e:
        return "error", "raised" if type(e) is jinja2.exceptions.TemplateError else "template"
    except TimeoutError:
        raise
    except Exception:
        return "error", "runtime"


VARS = {
    "i": 7, "j": -3, "z": 0, "big": 12345678901234567890, "f": 2.5, "g": -0.125, "h": 1e22, "t": True, "n": None,
    "s": "Hello World", "e": "", "u": "é漢😀ß", "w": "  a\tb\n c  ", "q": "it's \"q\"", "m": "a,b;c",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "ln": [[1, 2], [3]], "lm": [1, "a", None, 2.5, True], "le": [],
    "d": {"b": 1, "a": "x", "items": 5}, "de": {}, "dn": {"k": {"v": [1, {"w": "deep"}]}},
    "ms": [{"role": "user", "content": "Hi", "n": 2}, {"role": "assistant", "content": None, "n": 1},
           {"role": "user", "content": "Bye"}],
}
ADDRESS = re.compile("0x[0-9a-f]{9}", re.IGNORECASE)  # where an object lies: 0x7f..., sometimes 0x7e...
TEXTS = ["'a'", "'b'", "''", "' '", "'Hello'", "'é'", "'ß'", "'ΑΣ'", "'a b  c'", "'1'", "'-5'", "'3.7'", "'0x1F'",
         "'a\\nb\\n\\nc'", "'it\\'s'", "'{}'", "'%s'", "'<b>&\"'", "','", "'\\u00a0x\\u3000'", "'x-y_z'",
         "'they\\'re here'", "'aAbB'", "'\\t'", "'o'", "'1e3'", "' 12 '", "'ǆ'", "'a,b,,c'"]
NUMBERS = ["0", "1", "2", "3", "-1", "-2", "7", "10", "2.5", "0.1", "1e16", "1.5e-7", "100", "12345678901234567890",
           "0x1F", "1_000", "3.0"]
NAMES = list(VARS) + ["undef"]
FILTERS = ["abs", "capitalize", "count", "escape", "e", "first", "float", "forceescape", "int", "items", "last", "length",
           "list", "lower", "pprint", "reverse", "round", "safe", "string", "striptags", "title", "tojson", "trim",
           "upper", "urlencode", "wordcount", "sort", "unique", "min", "max", "sum", "dictsort", "join", "d", "default",
           "center", "indent", "truncate", "wordwrap", "filesizeformat", "xmlattr", "random_"]
ARG_FILTERS = ["join({t})", "join({t}, attribute='n')", "default({x})", "default({x}, true)", "replace({t}, {t})",
               "replace({t}, {t}, {k})", "trim({t})", "indent({k})", "indent({k}, true)", "indent({k}, blank=true)",
               "indent({t})", "truncate({k})", "truncate({k}, true)", "truncate({k}, false, {t}, {k})", "round({k})",
               "round({k}, 'ceil')", "round({k}, 'floor')", "int({x})", "int(0, {k})", "float({x})", "center({k})",
               "batch({k})|list", "batch({k}, {x})|list", "slice({k})|list", "slice({k}, {x})|list", "wordwrap({k})",
               "wordwrap({k}, false)", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='role')",
               "sort(attribute='n')", "unique(case_sensitive=true)|list", "min(attribute='n')", "max(attribute='n')",
               "sum({x})", "sum(attribute='n')", "sum(start={x})", "groupby('role')", "groupby('n', default=0)",
               "map('upper')|list", "map(attribute='role')|list", "map(attribute='n', default={x})|list",
               "map('default', {x})|list", "map('int')|join({t})", "select|list", "select({test})|list",
               "select('equalto', {x})|list", "reject({test})|list", "selectattr('n')|list",
               "selectattr('role', 'equalto', 'user')|list", "rejectattr('n', 'defined')|list", "tojson(indent={k})",
               "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=({t}, {t}))",
               "dictsort(by='value')", "dictsort(true)", "dictsort(reverse=true)", "format({x})", "format({x}, {x})",
               "attr({t})", "attr('role')", "filesizeformat(true)", "unique|list", "items|list", "reverse|list",
               "xmlattr(false)", "first({x})", "nosuch", "map('nosuch')|list", "select('nosuch')|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
         "sequence", "iterable", "callable", "lower", "upper", "odd", "even", "escaped"]
ARG_TESTS = ["divisibleby({k})", "divisibleby {k}", "in({x})", "eq({x})", "equalto {a}", "ne({x})", "lt({x})", "gt({x})",
             "le({x})", "ge({x})", "sameas({x})", "== {a}", "filter", "test"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()",
           "strip({t})", "lstrip({t})", "rstrip({t})", "split()", "split({t})", "split({t}, {k})", "rsplit()",
           "rsplit({t}, {k})", "split(none, {k})", "rsplit(none, {k})", "splitlines()", "splitlines(true)", "partition({t})",
           "rpartition({t})", "startswith({t})", "endswith({t})", "startswith(({t}, {t}))", "find({t})", "rfind({t})",
           "index({t})", "rindex({t})", "count({t})", "find({t}, {k})", "count({t}, {k}, {k})", "replace({t}, {t})",
           "replace({t}, {t}, {k})", "join({x})", "zfill({k})", "ljust({k})", "rjust({k}, {t})", "center({k})",
           "center({k}, '*')", "expandtabs({k})", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()",
           "islower()", "istitle()", "isnumeric()", "isdecimal()", "isascii()", "isidentifier()", "isprintable()",
           "removeprefix({t})", "removesuffix({t})", "format({x})", "format({x}, a={x})", "get({t})", "get({t}, {x})",
           "keys()|list", "values()|list", "items()", "items()|list", "copy()", "index({x})", "count({x})", "append({x})",
           "pop()", "update({x})", "nosuch()", "real", "imag", "role", "a", "__class__", "k.v", "bit_length()"]
PERCENT = ["'%s' % {x}", "'%d' % {n}", "'%5d|%-5d' % ({n}, {n})", "'%05.1f' % {n}", "'%r' % {x}", "'%x %o' % ({n}, {n})",
           "'%e' % {n}", "'%g' % {n}", "'%+d' % {n}", "'%.3s' % {x}", "'%c' % {n}", "'%(a)s' % {x}", "'%s %s' % ({x}, {x})",
           "'%%' % ()", "'%5s' % {t}", "'%#x' % {n}", "'%s' % ({x},)"]
BRACE = ["'{{}}'.format({x})", "'{{:>8}}'.format({x})", "'{{:<8}}|'.format({x})", "'{{:^9}}'.format({x})",
         "'{{:08.2f}}'.format({n})", "'{{:,}}'.format({n})", "'{{:e}}'.format({n})", "'{{:x}}'.format({n})",
         "'{{:+}}'.format({n})", "'{{!r}}'.format({x})", "'{{0[0]}}'.format({x})", "'{{0.role}}'.format({x})",
         "'{{a}}'.format(a={x})", "'{{:{{}}}}'.format({x}, {k})", "'{{:%}}'.format({n})", "'{{:g}}'.format({n})",
         "'{{:_}}'.format({n})", "'{{:*^12}}'.format({t})", "'{{:b}}'.format({n})", "'{{:.3}}'.format({n})",
         "'{{:010,}}'.format({n})", "'{{:#o}}'.format({n})", "'{{:.2}}'.format({t})", "'{{:d}}'.format({x})"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]


KINDS = {  # receivers, filters, methods and operators that suit each kind of value
    "text": dict(
        names=["s", "e", "u", "w", "q", "m"], filters=[
            "capitalize", "escape", "e", "float", "forceescape", "int", "length", "list", "lower", "reverse", "safe", "string",
            "striptags", "title", "tojson", "trim", "upper", "urlencode", "wordcount", "join({t})", "replace({t}, {t})",
            "replace({t}, {t}, {k})", "trim({t})", "indent({k})", "indent({k}, true)", "indent({k}, blank=true)", "indent({t})",
            "truncate({k})", "truncate({k}, true)", "truncate({k}, false, {t}, {k})", "center({k})", "wordwrap({k})",
            "wordwrap({k}, false)", "int({x}, {k})", "default({x}, true)", "first", "last", "unique|list", "sort|join",
            "batch(2)|list", "slice(2)|list", "map('upper')|join", "map('int')|list", "select({test})|list", "pprint",
            "format({x})", "urlencode", "xmlattr", "count", "min", "max"],
        methods=[m for m in METHODS if "list" not in m or m.startswith("split")],
        tests=["defined", "none", "string", "iterable", "sequence", "lower", "upper", "in({t})", "eq({t})", "escaped"],
        binary=["+", "~", "==", "!=", "<", "in", "not in", "and", "or"]),
    "number": dict(
        names=["i", "j", "z", "big", "f", "g", "h", "t"], filters=[
            "abs", "float", "int", "round", "round({k})", "round({k}, 'ceil')", "round({k}, 'floor')", "string", "tojson",
            "filesizeformat", "filesizeformat(true)", "default({x})", "pprint", "e", "upper", "center(8)"],
        methods=["real", "imag", "numerator", "bit_length()", "is_integer()", "conjugate()"],
        tests=["defined", "number", "integer", "float", "boolean", "odd", "even", "divisibleby({k})", "divisibleby 3", "true",
               "false", "gt({n})", "lt({n})", "ge({n})", "le({n})", "eq({n})", "ne({n})", "in([1, 2])"],
        binary=["+", "-", "*", "/", "//", "%", "** 2 +", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or"]),
    "list": dict(
        names=["l", "ls", "ln", "lm", "le", "ms"], filters=[
            "count", "first", "last", "length", "list", "reverse|list", "sort", "unique|list", "min", "max", "sum", "join",
            "join({t})", "tojson", "tojson(indent={k})", "pprint", "string", "batch({k})|list", "batch({k}, {x})|list",
            "slice({k})|list", "slice({k}, {x})|list", "sort(reverse=true)", "sort(case_sensitive=true)",
            "sort(attribute='role')", "sum(start={n})", "groupby('role')", "groupby('n', default=0)|list",
            "map('upper')|list", "map('string')|join({t})", "map(attribute='role')|list", "map(attribute='n', default={x})|list",
            "map('default', {x}, true)|list", "select|list", "select({test})|list", "select('equalto', {x})|list",
            "reject({test})|list", "rejectattr('n')|list", "selectattr('n', 'defined')|list", "map('length')|list",
            "selectattr('role', 'equalto', 'user')|map(attribute='content')|list", "join(', ', attribute='n')", "random_"],
        methods=["index({x})", "count({x})", "copy()", "pop()", "append({x})"],
        tests=["defined", "iterable", "sequence", "mapping", "eq({x})", "in([1])"],
        binary=["+", "==", "!=", "<", "and", "or", "in", "~"]),
    "dict": dict(
        names=["d", "de", "dn"], filters=[
            "length", "list", "items|list", "dictsort", "dictsort(by='value')", "dictsort(true)", "dictsort(reverse=true)",
            "tojson", "tojson(indent={k})", "tojson(sort_keys=true)", "tojson(separators=({t}, {t}))", "string", "pprint",
            "urlencode", "xmlattr", "xmlattr(false)", "first", "join({t})", "attr('items')", "default({x})"],
        methods=["get({t})", "get({t}, {x})", "keys()|list", "values()|list", "items()", "items()|list", "copy()", "a", "b", "k.v",
                 "nosuch", "update(x=1)", "keys()", "k.v[1].w"],
        tests=["defined", "mapping", "iterable", "sequence", "eq({x})"],
        binary=["==", "!=", "and", "or", "~"]),
}


class Maker:
    def __init__(self, rng):
        self.r = rng

    def fill(self, pattern, depth):
        hits = [(pattern.find(key), key) for key in ("{t}", "{k}", "{x}", "{a}", "{n}", "{test}") if key in pattern]
        if not hits:
            return pattern
        at, key = min(hits)
        value = {"{t}": lambda: self.r.choice(TEXTS), "{k}": lambda: str(self.r.choice([0, 1, 2, 3, 5, 8, -1, -4, 12])),
                 "{x}": lambda: self.expr(depth - 1), "{a}": lambda: self.r.choice(NUMBERS[:9] + TEXTS[:6]),
                 "{n}": lambda: self.r.choice(NUMBERS + ["i", "f", "j", "t", "big"]),
                 "{test}": lambda: "'" + self.r.choice(TESTS) + "'"}[key]()
        return pattern[:at] + value + self.fill(pattern[at + len(key):], depth)

    def atom(self, kind):
        r = self.r
        if r.random() < 0.5:
            return r.choice(KINDS[kind]["names"])
        if kind == "text":
            return r.choice(TEXTS)
        if kind == "number":
            return r.choice(NUMBERS + ["true", "false"])
        if kind == "list":
            return r.choice(["[]", "()", "[1, 2]", "['b', 'a', 'B']", "(1, 'x')", "range(4)", "range(5, 0, -2)", "[[1], []]", "[none, 0, '']"])
        return r.choice(["{}", "{'a': 1}", "{'b': [1], 'a': none}", "dict(a=1)", "dict(d, z=2)", "{1: 2, true: 3, 'x': 0.5}"])

    def expr(self, depth, kind=None):
        r = self.r
        if r.random() < 0.06:
            return self.wild(depth)
        kind = kind or r.choice(["text", "text", "number", "list", "dict"])
        if depth <= 0:
            return self.atom(kind)
        k = KINDS[kind]
        x = lambda: self.expr(depth - 1, kind)
        receiver = lambda: "(%s)" % x() if r.random() < 0.5 else r.choice(k["names"])
        what = r.randrange(12)
        if what < 4:
            return "%s|%s" % (receiver(), self.fill(r.choice(k["filters"]), depth))
        if what < 6:
            return "%s.%s" % (receiver(), self.fill(r.choice(k["methods"]), depth))
        if what < 8:
            return "%s %s %s" % (x(), r.choice(k["binary"]), x())
        if what < 9:
            return "%s is %s%s" % (receiver(), r.choice(["", "", "not "]), self.fill(r.choice(k["tests"]), depth))
        if what < 10 and kind in ("text", "list"):
            return r.choice(k["names"]) + r.choice(["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "[::2]", "[9]", "[-2::-1]"])
        if what < 10 and kind == "number":
            return self.fill(r.choice(PERCENT[:1] + PERCENT[1:4] + PERCENT[5:11]), depth)
        if what < 11:
            return "%s if %s%s" % (x(), self.expr(depth - 1), r.choice(["", " else " + x()]))
        brace = r.choice(BRACE).replace("{{", "\x01").replace("}}", "\x02")
        return self.fill(brace, depth).replace("\x01", "{").replace("\x02", "}")

    # Anything with anything.
    def wild(self, depth):
        r = self.r
        x = lambda: self.expr(depth - 1)
        if depth <= 0:
            return r.choice(NAMES + TEXTS + NUMBERS + ["none", "namespace(a=1)"])
        what = r.randrange(8)
        if what == 0:
            return "%s %s %s" % (x(), r.choice(BINARY), x())
        if what == 1:
            return "(%s)|%s" % (x(), r.choice(FILTERS))
        if what == 2:
            return "(%s)|%s" % (x(), self.fill(r.choice(ARG_FILTERS), depth))
        if what == 3:
            return "%s is %s%s" % (x(), r.choice(["", "not "]), self.fill(r.choice(TESTS + ARG_TESTS), depth))
        if what == 4:
            return "(%s).%s" % (x(), self.fill(r.choice(METHODS), depth))
        if what == 5:
            return "%s[%s]" % (r.choice(NAMES), x())
        if what == 6:
            return r.choice(["not %s", "-%s", "+%s", "%s, "]) % x()
        return self.fill(r.choice(PERCENT), depth)

    def tag(self, text):
        r = self.r
        return "{%%%s %s %s%%}" % (r.choice(["", "", "", "-", "+"]), text, r.choice(["", "", "", "-", "+"]))

    def output(self, depth):
        r = self.r
        return "{{%s %s %s}}" % (r.choice(["", "", "-"]), self.expr(depth), r.choice(["", "", "-"]))

    def data(self):
        return self.r.choice(["", " ", "\n", "  \n", "x", "a b\n", "\n\n", "\t", "|", "é", " \n  ", "#", "{ }", "}}", "\r\n"])

    def body(self, depth, loops=0):
        return "".join(self.piece(depth, loops) + self.data() for _ in range(self.r.randint(1, 3)))

    def piece(self, depth, loops):
        r = self.r
        kind = r.randrange(20)
        if depth <= 0 or kind < 7:
            return self.data() + self.output(2)
        tag, x = self.tag, lambda d=1: self.expr(d)
        name = r.choice(["v", "x", "y", "i", "s", "ns.a", "m1"])
        if kind < 9:
            return tag("set %s = %s" % (name, x(2)))
        if kind < 11:
            out = tag("if " + x()) + self.body(depth - 1, loops)
            if r.random() < 0.3:
                out += tag("elif " + x()) + self.body(depth - 1, loops)
            if r.random() < 0.5:
                out += tag("else") + self.body(depth - 1, loops)
            return out + tag("endif")
        if kind < 14:
            head = r.choice(["for x in %s", "for x in l", "for x, y in d.items()", "for m in ms", "for x in ls|sort",
                             "for k, v in d|dictsort", "for x in range(3)", "for x in l recursive"])
            head = head % x() if "%s" in head else head
            if r.random() < 0.25 and "recursive" not in head:
                head += " if " + r.choice(["x", "x != 2", "loop", "x is odd", x()])
            inside = self.body(depth - 1, loops + 1)
            inside += r.choice(["", "{{ loop.index }}", "{{ x }}", "{{ loop.last }}{{ loop.revindex }}", "{{ loop.previtem }}",
                                "{{ loop.nextitem }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ loop.length }}",
                                "{% if loop.first %}F{% endif %}", "{% if x == 1 %}{% break %}{% endif %}",
                                "{% if loop.index is odd %}{% continue %}{% endif %}", "{{ loop.depth }}", "{{ v }}{% set v = x %}{{ v }}"])
            out = tag(head) + inside
            if r.random() < 0.25:
                out += tag("else") + self.body(depth - 1, loops)
            return out + tag("endfor")
        if kind < 15:
            params = r.choice(["", "a", "a, b=2", "x=1", "a, b=a", "caller=none", "a=i"])
            args = r.choice(["", "1", "1, 2", "a=3", "b=4, a=1", "1, c=2", "*l", "**d", "x"])
            inside = self.body(depth - 1) + r.choice(["", "{{ a }}", "{{ a }}{{ b }}", "{{ varargs }}", "{{ kwargs }}", "{{ x }}",
                                                      "{{ caller() if caller is defined }}", "{{ v }}"])
            return tag("macro m1(%s)" % params) + inside + tag("endmacro") + "{{ m1(%s) }}" % args
        if kind < 16:
            return tag("set %s%s" % (r.choice(["v", "x", "y"]), r.choice(["", " | upper", " | trim | length"]))) + self.body(
                depth - 1, loops) + tag("endset") + "{{ v }}"
        if kind < 17:
            return tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')", "indent(2)", "length"])) + self.body(
                depth - 1, loops) + tag("endfilter")
        if kind < 18:
            return tag("with %s" % r.choice(["", "v = %s" % x(), "v = 1, x = v"])) + self.body(depth - 1, loops) + tag("endwith")
        if kind < 19:
            return r.choice([
                tag("generation") + self.body(depth - 1) + tag("endgeneration"), tag("raw") + " {{ x }} " + tag("endraw"),
                "{#%s c %s#}" % (r.choice(["", "-"]), r.choice(["", "-"])), "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}",
                "{% macro m2() %}[{{ caller(1) }}]{% endmacro %}{% call(p) m2() %}{{ p }}" + self.body(depth - 1) + "{% endcall %}",
                "{% block " + "b%d" % r.randrange(10 ** 6) + r.choice(["", " scoped"]) + " %}" + self.body(depth - 1) + "{{ v }}{% endblock %}",
                "{{ strftime_now('%d %b %Y %H:%M %j %p %A') }}", "{% autoescape true %}" + self.body(depth - 1, loops) + "{% endautoescape %}"])
        return self.output(3)

    def snippet(self):
        if self.r.random() < 0.55:
            return "{{ %s }}" % self.expr(self.r.randint(1, 3))
        return self.body(self.r.randint(1, 3))


def too_slow(signum, frame):
    raise TimeoutError()


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    env = environment()
    signal.signal(signal.SIGALRM, too_slow)
    maker = Maker(random.Random(seed))
    while count > 0:
        source = maker.snippet()
        variables = json.loads(json.dumps(VARS))
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            key, value = outcome(env, source, variables)
        except TimeoutError:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if key == "text" and (ADDRESS.search(value) or len(value) > 10000):
            continue
        try:
            line = json.dumps({"template": source, "vars": VARS, key: value})
            value.encode("utf-8")
        except UnicodeEncodeError:
            continue
        print(line)
        count -= 1


if __name__ == "__main__":
    main()
