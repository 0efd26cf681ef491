"""The requests of hostile.py: bodies, headers, queries, paths and patches that are malformed, too large or misleading.

Requests are an id, a method, a path, headers and a body: text, bytes, or what is written as JSON. None changes objects:
writes are dry runs, or name what does not exist.
"""

import base64
import gzip
import json
from urllib.parse import quote

NS = "/api/v1/namespaces/hostile"
MAPS = NS + "/configmaps"
APPS = "/apis/apps/v1/namespaces/hostile"
G = "hostile.example.com"
CRS = f"/apis/{G}/v1/namespaces/hostile/things"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Media types.
J, Y, P = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
JP, MP, SP = "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"
CT = "Content-Type"


def crd(plural, schema, group=G, **more):
    kind = plural.capitalize()
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version.update(more.pop("version", {}))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": kind + "List", "singular": plural},
            "versions": [version],
            **more,
        },
    }


THING = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "int": {"type": "integer"},
                "int32": {"type": "integer", "format": "int32"},
                "num": {"type": "number", "minimum": -5, "maximum": 100, "multipleOf": 0.5},
                "str": {"type": "string", "maxLength": 10, "pattern": "^(a+)+$"},
                "enum": {"type": "string", "enum": ["a", "b"]},
                "bool": {"type": "boolean"},
                "date": {"type": "string", "format": "date-time"},
                "ios": {"x-kubernetes-int-or-string": True},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "emb": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "list": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {
                        "type": "object",
                        "required": ["k"],
                        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                    },
                },
                "dict": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
                "null": {"type": "string", "nullable": True},
                "def": {"type": "string", "default": "x"},
                "one": {"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 1}]},
                "not": {"type": "integer", "not": {"enum": [3]}},
            },
        },
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}]}
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        },
    },
}
SETUP = [
    ("/api/v1/namespaces", {"metadata": {"name": "hostile"}}),
    (MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}),
    (APPS + "/deployments", DEPLOYMENT),
    (CRDS, crd("things", THING, version={"subresources": {"status": {}}})),
]
SETUP += [
    (
        CRS,
        {
            "apiVersion": f"{G}/v1",
            "kind": "Things",
            "metadata": {"name": "t"},
            "spec": {"list": ["a"], "any": {"x": 1}},
        },
    )
]


def varint(n):
    out = b""
    while True:
        b = n & 127
        n >>= 7
        out += bytes([b | (128 if n else 0)])
        if not n:
            return out


def tag(num, wire):
    return varint(num << 3 | wire)


def field(num, data):
    return tag(num, 2) + varint(len(data)) + data


def envelope(raw, kind=b"ConfigMap", version=b"v1", extra=b""):
    return b"k8s\0" + field(1, field(1, version) + field(2, kind)) + field(2, raw) + extra


def meta(name):
    return field(1, field(1, name))


def deep(n, inner="1"):
    return '{"a":' * n + inner + "}" * n


# The collections that no request changes.
UNCHANGED = [MAPS, APPS + "/deployments", CRS, CRDS]

# A YAML document whose aliases stand for a billion texts.
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(8)
)


def post(id, body, ct=J, path=MAPS, q="?dryRun=All", headers=()):
    return (id, "POST", path + q, [(CT, ct), *headers], body)


def patch(id, body, ct, path=MAPS + "/a", q="?dryRun=All"):
    return (id, "PATCH", path + q, [(CT, ct)], body)


def token(data):
    """A token to continue a list."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def definition(id, schema, **more):
    return (f"crd-{id}", "POST", CRDS + "?dryRun=All", [(CT, J)], crd("bombs", schema, **more))


def with_spec(properties):
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def json_bodies():
    texts = {
        "empty": "",
        "space": "  \n",
        "null": "null",
        "true": "true",
        "number": "5",
        "string": '"x"',
        "array": "[]",
        "array-of": "[{}]",
        "brace": "{",
        "bracket": "[",
        "unclosed-string": '{"a',
        "no-colon": '{"a"}',
        "no-value": '{"a":}',
        "comma": '{"a":1,}',
        "comma2": "{,}",
        "single": "{'a':1}",
        "bare": "{a:1}",
        "nul": '{"kind":"ConfigMap\0"}',
        "trail": '{"metadata":{"name":"j1"}} x',
        "two": '{"metadata":{"name":"j2"}}{"metadata":{"name":"j3"}}',
        "comment": '{"metadata":{"name":"j"}/*x*/}',
        "nan": '{"data":{"a":NaN}}',
        "inf": '{"data":Infinity}',
        "hexnum": '{"immutable":0x1}',
        "leading-zero": '{"metadata":{"generation":01}}',
        "plus": '{"metadata":{"generation":+1}}',
        "dot": '{"metadata":{"generation":.5}}',
        "exp": '{"metadata":{"generation":1e}}',
        "ctrl": '{"metadata":{"name":"a\nb"}}',
        "badesc": '{"metadata":{"name":"\\x"}}',
        "badu": '{"metadata":{"name":"\\u12g4"}}',
        "surrogate": '{"metadata":{"name":"s"},"data":{"a":"\\ud800"}}',
        "pair": '{"metadata":{"name":"s"},"data":{"a":"\\ud83d\\ude00"}}',
        "bom": b'\xef\xbb\xbf{"metadata":{"name":"bom"}}',
        "utf16": '{"metadata":{"name":"u"}}'.encode("utf-16"),
        "latin": b'{"metadata":{"name":"l"},"data":{"a":"\xff"}}',
        "latin-name": b'{"metadata":{"name":"l\xff"}}',
        "int-big": '{"metadata":{"name":"i","generation":9223372036854775808}}',
        "int-exp": '{"metadata":{"name":"i","generation":1e3}}',
        "int-dot": '{"metadata":{"name":"i","generation":1.0}}',
        "int-frac": '{"metadata":{"name":"i","generation":1.5}}',
        "int-neg0": '{"metadata":{"name":"i","generation":-0}}',
        "int-neg0f": '{"metadata":{"name":"i","generation":-0.0}}',
        "int-1e400": '{"metadata":{"name":"i","generation":1e400}}',
        "int-1e19": '{"metadata":{"name":"i","generation":1e19}}',
        "kind-int": '{"kind":5,"metadata":{"name":"i"}}',
        "apiversion-int": '{"apiVersion":5,"metadata":{"name":"i"}}',
        "kind-null": '{"kind":null,"metadata":{"name":"i"}}',
        "kind-other": '{"kind":"Secret","apiVersion":"v1","metadata":{"name":"i"}}',
        "kind-none": '{"kind":"Nope","apiVersion":"v1","metadata":{"name":"i"}}',
        "kind-only": '{"kind":"ConfigMap","metadata":{"name":"i"}}',
        "av-only": '{"apiVersion":"v1","metadata":{"name":"i"}}',
        "av-other": '{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"i"}}',
        "av-slashes": '{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"i"}}',
        "kind-case": '{"Kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"i"}}',
        "kind-list": '{"apiVersion":"v1","kind":"ConfigMapList","items":[]}',
        "kind-List": '{"apiVersion":"v1","kind":"List","items":[]}',
        "kind-status": '{"apiVersion":"v1","kind":"Status"}',
        "kind-deleteoptions": '{"apiVersion":"v1","kind":"DeleteOptions"}',
        "meta-null": '{"metadata":null}',
        "meta-str": '{"metadata":"x"}',
        "meta-arr": '{"metadata":[]}',
        "meta-missing": "{}",
        "name-int": '{"metadata":{"name":1}}',
        "labels-arr": '{"metadata":{"name":"i","labels":["a"]}}',
        "labels-int": '{"metadata":{"name":"i","labels":{"a":1}}}',
        "labels-null": '{"metadata":{"name":"i","labels":{"a":null}}}',
        "owners-obj": '{"metadata":{"name":"i","ownerReferences":{}}}',
        "owners-empty": '{"metadata":{"name":"i","ownerReferences":[{}]}}',
        "owners-null": '{"metadata":{"name":"i","ownerReferences":[null]}}',
        "fin-null": '{"metadata":{"name":"i","finalizers":[null]}}',
        "fin-bad": '{"metadata":{"name":"i","finalizers":["nope","a/b/c",""]}}',
        "fin-dup": '{"metadata":{"name":"i","finalizers":["a/b","a/b"]}}',
        "time-bad": '{"metadata":{"name":"i","creationTimestamp":"x"}}',
        "time-int": '{"metadata":{"name":"i","creationTimestamp":5}}',
        "time-empty": '{"metadata":{"name":"i","creationTimestamp":""}}',
        "time-y10k": '{"metadata":{"name":"i","creationTimestamp":"10000-01-01T00:00:00Z"}}',
        "time-feb30": '{"metadata":{"name":"i","creationTimestamp":"2024-02-30T00:00:00Z"}}',
        "time-lower": '{"metadata":{"name":"i","creationTimestamp":"2024-02-03t00:00:00z"}}',
        "time-leap": '{"metadata":{"name":"i","creationTimestamp":"2024-02-03T00:00:60Z"}}',
        "rv-set": '{"metadata":{"name":"i","resourceVersion":"7"}}',
        "rv-bad": '{"metadata":{"name":"i","resourceVersion":"x"}}',
        "rv-neg": '{"metadata":{"name":"i","resourceVersion":"-1"}}',
        "rv-huge": '{"metadata":{"name":"i","resourceVersion":"99999999999999999999"}}',
        "rv-int": '{"metadata":{"name":"i","resourceVersion":7}}',
        "uid": '{"metadata":{"name":"i","uid":5}}',
        "ns-other": '{"metadata":{"name":"i","namespace":"other"}}',
        "ns-int": '{"metadata":{"name":"i","namespace":1}}',
        "generation-neg": '{"metadata":{"name":"i","generation":-1}}',
        "mf-bad": '{"metadata":{"name":"i","managedFields":[{"manager":"x"}]}}',
        "mf-op": '{"metadata":{"name":"i","managedFields":[{"manager":"x","operation":"Nope"}]}}',
        "mf-obj": '{"metadata":{"name":"i","managedFields":{}}}',
        "selflink": '{"metadata":{"name":"i","selfLink":"/x"}}',
        "gen-name-only": '{"metadata":{"generateName":"-bad"}}',
        "gen-name-long": json.dumps({"metadata": {"generateName": "g" * 300}}),
        "gen-name-upper": '{"metadata":{"generateName":"Bad"}}',
        "gen-and-name": '{"metadata":{"name":"i","generateName":"Bad!"}}',
        "data-arr": '{"metadata":{"name":"i"},"data":[]}',
        "data-int": '{"metadata":{"name":"i"},"data":{"a":1}}',
        "data-null": '{"metadata":{"name":"i"},"data":{"a":null}}',
        "data-key": '{"metadata":{"name":"i"},"data":{"a b":"c","..":"x","":"y",".":"z"}}',
        "bin-bad": '{"metadata":{"name":"i"},"binaryData":{"a":"***"}}',
        "bin-int": '{"metadata":{"name":"i"},"binaryData":{"a":1}}',
        "bin-null": '{"metadata":{"name":"i"},"binaryData":{"a":null}}',
        "bin-nopad": '{"metadata":{"name":"i"},"binaryData":{"a":"YQ"}}',
        "bin-url": '{"metadata":{"name":"i"},"binaryData":{"a":"_-8="}}',
        "bin-nl": '{"metadata":{"name":"i"},"binaryData":{"a":"YW\\nE="}}',
        "bin-arr": '{"metadata":{"name":"i"},"binaryData":{"a":[1,2,300]}}',
        "bin-arr-ok": '{"metadata":{"name":"i"},"binaryData":{"a":[1,2,3]}}',
        "both": '{"metadata":{"name":"i"},"data":{"a":"x"},"binaryData":{"a":"YQ=="}}',
        "immutable-str": '{"metadata":{"name":"i"},"immutable":"true"}',
        "immutable-int": '{"metadata":{"name":"i"},"immutable":1}',
        "case-field": '{"metadata":{"Name":"i"}}',
        "case-data": '{"metadata":{"name":"i"},"Data":{"a":"b"}}',
        "unknown": '{"metadata":{"name":"i"},"nope":1}',
        "unknown-deep": '{"metadata":{"name":"i","nope":{"a":[1,2,{"b":3}]}}}',
        "dup": '{"metadata":{"name":"i","name":"k"},"metadata":{"name":"z"},"data":{"a":"1","a":"2"}}',
        "dup-case": '{"metadata":{"name":"i"},"data":{"a":"1"},"Data":{"a":"2"}}',
        "dup-null": '{"metadata":{"name":"i"},"metadata":null}',
        "empty-key": '{"":1,"metadata":{"name":"i"}}',
        "long-key": json.dumps({"metadata": {"name": "i"}, "k" * 5000: 1}),
        "proto-key": '{"__proto__":{"a":1},"metadata":{"name":"i"}}',
        "ann-big": json.dumps({"metadata": {"name": "i", "annotations": {"a": "x" * (257 * 1024)}}}),
        "ann-bad": '{"metadata":{"name":"i","annotations":{"a b":"c","-":"d","A/b":"x","a/b/c":"y"}}}',
        "label-bad": '{"metadata":{"name":"i","labels":{"a b":"c","a":"-x","b":"' + "x" * 64 + '"}}}',
        "data-big": json.dumps({"metadata": {"name": "i"}, "data": {"a": "x" * (1024 * 1024)}}),
        "data-big2": json.dumps({"metadata": {"name": "i"}, "data": {"a": "x" * (1024 * 1024 + 1)}}),
        "deep-100": deep(100),
        "deep-unknown-100": '{"metadata":{"name":"i"},"x":%s}' % deep(100),
        "deep-10001": deep(10001),
        "deep-200k": deep(200000),
        "open-1m": "[" * 1000000,
        "open-obj": '{"a":' * 500000,
        "quote-1m": '"' + "\\" * 1000001,
    }
    for name, text in texts.items():
        yield post("json-" + name, text)
    for name in ("dup", "unknown", "unknown-deep", "case-data", "dup-case", "long-key", "empty-key"):
        for fv in ("Strict", "Ignore", "Warn", "strict", "", "Nope"):
            yield post(f"json-fv-{name}-{fv or 'empty'}", texts[name], q="?dryRun=All&fieldValidation=" + fv)
    for name in (
        "empty",
        "null",
        "number",
        "array",
        "brace",
        "trail",
        "kind-int",
        "apiversion-int",
        "kind-null",
        "kind-other",
        "kind-only",
        "av-only",
        "meta-null",
        "meta-str",
        "meta-missing",
        "dup",
        "int-neg0f",
        "deep-10001",
    ):
        yield post("crjson-" + name, texts[name], path=CRS)
    yield post("big-exact", b'{"metadata":{"name":"i"}}' + b" " * (3 * 1024 * 1024 - 25))
    yield post("big-one-more", b'{"metadata":{"name":"i"}}' + b" " * (3 * 1024 * 1024 - 24))
    yield post("big-4m", b" " * (4 << 20))


def yaml_bodies():
    yamls = {
        "plain": "metadata: {name: y}",
        "empty": "",
        "comment": "# x",
        "dash": "---",
        "dots": "...",
        "scalar": "hello",
        "int": "5",
        "list": "- a",
        "null": "~",
        "two": "metadata: {name: y}\n---\nmetadata: {name: z}",
        "two-bad": "metadata: {name: y}\n---\n{{{",
        "leading": "---\n---\nmetadata: {name: y}",
        "end": "metadata: {name: y}\n...\nx: y",
        "alias": "metadata: {name: y}\ndata: {a: &x hello, b: *x}",
        "alias-unknown": "metadata: {name: *x}",
        "alias-self": "metadata: {name: y}\ndata: &x {a: *x}",
        "merge": "metadata: {name: y}\nx: &d {a: b}\ndata:\n  <<: *d\n  c: d",
        "merge-list": "metadata: {name: y}\nx: &d {a: b}\nz: &e {e: f}\ndata:\n  <<: [*d, *e]\n  c: d",
        "merge-scalar": "metadata: {name: y}\ndata:\n  <<: 5",
        "merge-inline": "metadata: {name: y}\ndata: {<<: {a: b}, a: c}",
        "anchor-dup": "metadata: &a {name: y}\ndata: &a {a: b}",
        "bomb": BOMB,
        "bomb-map": "a: &a {x: y}\n"
        + "\n".join(
            f"{chr(98+i)}: &{chr(98+i)} {{" + ",".join(f"k{j}: *{chr(97+i)}" for j in range(10)) + "}" for i in range(8)
        ),
        "tag-str": "metadata: {name: !!str 5}",
        "tag-int": "metadata: {name: !!int x}",
        "tag-int-q": 'metadata: {name: y, generation: !!int "5"}',
        "tag-bin": "metadata: {name: y}\nbinaryData: {a: !!binary YQ==}",
        "tag-bin-bad": "metadata: {name: y}\ndata: {a: !!binary '***'}",
        "tag-own": "metadata: {name: !foo y}",
        "tag-uri": "metadata: {name: !<tag:x,2020:y> y}",
        "tag-set": "metadata: !!set {name: y}",
        "tag-map": "metadata: !!map {name: y}",
        "tag-seq": "metadata: !!seq {name: y}",
        "tag-bad": "metadata: {name: !! y}",
        "tag-float": "metadata: {name: y, generation: !!float 5}",
        "tag-null": "metadata: {name: !!null y}",
        "tag-time": "metadata: {name: y}\ndata: {a: !!timestamp 2024-01-01}",
        "tag-python": "metadata: !!python/object/apply:os.system [x]",
        "tab": "metadata:\n\tname: y",
        "tab-after": "metadata:\n  name:\ty",
        "tab-flow": "metadata: {\tname: y}",
        "indent": "metadata:\n  name: y\n bad: z",
        "colon": "metadata: name: y",
        "unclosed": "metadata: {name: y",
        "unclosed-q": "metadata: {name: 'y",
        "unclosed-dq": 'metadata: {name: "y',
        "badesc": 'metadata: {name: "\\q"}',
        "at": "metadata: {name: @y}",
        "backtick": "metadata: {name: `y}",
        "percent": "%YAML 1.2\n---\nmetadata: {name: y}",
        "directive": "%YAML 3.0\n---\nmetadata: {name: y}",
        "directive-bad": "%FOO\n---\nmetadata: {name: y}",
        "directive-tag": "%TAG ! tag:x,2020:\n---\nmetadata: {name: !y y}",
        "latin": b"metadata: {name: y\xff}",
        "utf16": "metadata: {name: y}".encode("utf-16"),
        "bom": b"\xef\xbb\xbfmetadata: {name: y}",
        "nul": b"metadata: {name: y\0}",
        "ctrl": b"metadata: {name: y}\ndata: {a: \x01}",
        "del": b"metadata: {name: y}\ndata: {a: \x7f}",
        "nel": "metadata: {name: y}\ndata: {a: x\u0085y}",
        "ls": "metadata: {name: y}\ndata: {a: 'x\u2028y'}",
        "astral": "metadata: {name: y}\ndata: {a: \U0001f600}",
        "bool-y": "metadata: {name: y}\ndata: {a: y}",
        "bool-yes": "metadata: {name: y}\ndata: {a: yes}",
        "bool-on": "metadata: {name: y}\nimmutable: on",
        "bool-off": "metadata: {name: y}\nimmutable: off",
        "bool-True": "metadata: {name: y}\nimmutable: True",
        "bool-tRue": "metadata: {name: y}\nimmutable: tRue",
        "octal": "metadata: {name: y, generation: 010}",
        "octal-o": "metadata: {name: y, generation: 0o10}",
        "hex": "metadata: {name: y, generation: 0xff}",
        "bin": "metadata: {name: y, generation: 0b11}",
        "under": "metadata: {name: y, generation: 1_000}",
        "sexa": "metadata: {name: y, generation: 1:30}",
        "float": "metadata: {name: y, generation: 1.0}",
        "exp": "metadata: {name: y, generation: 1e3}",
        "inf": "metadata: {name: y, generation: .inf}",
        "nan": "metadata: {name: y, generation: .nan}",
        "big": "metadata: {name: y, generation: 9223372036854775808}",
        "neg0": "metadata: {name: y, generation: -0}",
        "neg00": "metadata: {name: y, generation: -0.0}",
        "plus": "metadata: {name: y, generation: +5}",
        "date": "metadata: {name: y}\ndata: {a: 2024-01-01}",
        "date-key": "metadata: {name: y}\ndata: {2024-01-01: a}",
        "key-int": "metadata: {name: y}\ndata: {1: a}",
        "key-bool": "metadata: {name: y}\ndata: {true: a}",
        "key-null": "metadata: {name: y}\ndata: {~: a}",
        "key-float": "metadata: {name: y}\ndata: {1.5: a}",
        "key-list": "metadata: {name: y}\ndata: {[a]: b}",
        "key-map": "metadata: {name: y}\ndata: {{a: b}: c}",
        "key-q": "metadata: {name: y}\n? data\n: {a: b}",
        "key-complex": "metadata: {name: y}\n? [a, b]\n: x",
        "dup": "metadata: {name: y, name: z}\ndata: {a: b, a: c}",
        "dup-int": "metadata: {name: y}\ndata: {1: b, '1': c}",
        "key-long": "metadata: {name: y}\ndata:\n  " + "a" * 2000 + ": b",
        "literal": "metadata: {name: y}\ndata:\n  a: |+2\n    x\n",
        "literal-bad": "metadata: {name: y}\ndata:\n  a: |0\n   x",
        "literal-bad2": "metadata: {name: y}\ndata:\n  a: |x\n   x",
        "folded": "metadata: {name: y}\ndata:\n  a: >-\n   x\n   y",
        "json": '{"metadata":{"name":"y"}}',
        "json-tab": '{"metadata":\t{"name":"y"}}',
        "json-trail": '{"metadata":{"name":"y"}} x',
        "deep-flow": "a: " + "[" * 100 + "]" * 100,
        "deep-flow-20k": "a: " + "[" * 20000 + "]" * 20000,
        "deep-open-1m": "[" * 1000000,
        "deep-map-open": "{a: " * 100000,
        "deep-dash": "- " * 20000 + "x",
        "deep-block": "\n".join(" " * i + "a:" for i in range(1200)),
        "qmarks": "? " * 10000,
        "long-scalar": "metadata: {name: y}\ndata: {a: " + "x" * 100000 + "}",
        "many-keys": "metadata: {name: y}\ndata:\n" + "\n".join(f"  k{i}: v" for i in range(20000)),
        "many-anchors": "metadata: {name: y}\nx:\n" + "\n".join(f"- &a{i} v" for i in range(20000)),
        "spaces": " " * 500000,
        "dashes": "-" * 300000,
        "colons": ":" * 300000,
        "quotes": "'" * 300001,
        "cr": "metadata: {name: y}\rdata: {a: b}",
        "crlf": "metadata: {name: y}\r\ndata: {a: b}\r\n",
    }
    for name, text in yamls.items():
        yield post("yaml-" + name, text, Y)
    for name in ("dup", "dup-int", "merge", "alias", "two"):
        yield post("yaml-strict-" + name, yamls[name], Y, q="?dryRun=All&fieldValidation=Strict")
    for name in ("plain", "null", "list", "bomb", "two", "tag-own", "key-int", "inf", "neg00", "deep-flow-20k"):
        yield post("cryaml-" + name, yamls[name], Y, path=CRS)


def protobuf_bodies():
    good = envelope(meta(b"p"))
    pbs = {
        "good": good,
        "empty": b"",
        "magic": b"k8s\0",
        "magic-half": b"k8",
        "magic-wrong": b"K8S\0" + good[4:],
        "json": b"{}",
        "raw": meta(b"p"),
        "truncated": good[:-2],
        "truncated2": good[:8],
        "no-type": b"k8s\0" + field(2, meta(b"p")),
        "no-raw": b"k8s\0" + field(1, field(1, b"v1") + field(2, b"ConfigMap")),
        "kind-unknown": envelope(meta(b"p"), b"Nope"),
        "kind-other": envelope(meta(b"p"), b"Secret"),
        "kind-empty": envelope(meta(b"p"), b""),
        "version-other": envelope(meta(b"p"), b"ConfigMap", b"apps/v1"),
        "version-slashes": envelope(meta(b"p"), b"ConfigMap", b"a/b/c"),
        "version-none": envelope(meta(b"p"), b"ConfigMap", b""),
        "encoding": envelope(meta(b"p"), extra=field(3, b"gzip")),
        "ctype": envelope(meta(b"p"), extra=field(4, b"application/json")),
        "wire0": envelope(tag(1, 0) + b"\1"),
        "wire1": envelope(tag(1, 1) + b"12345678"),
        "wire5": envelope(tag(1, 5) + b"1234"),
        "wire6": envelope(tag(1, 6)),
        "wire7": envelope(tag(1, 7)),
        "group-start": envelope(tag(9, 3) + tag(9, 4) + meta(b"p")),
        "group-open": envelope(tag(9, 3) * 10),
        "group-deep": envelope(tag(9, 3) * 100000 + tag(9, 4) * 100000 + meta(b"p")),
        "group-end": envelope(tag(9, 4)),
        "field0": envelope(tag(0, 2) + b"\1x"),
        "field-big": envelope(tag(536870911, 0) + b"\1" + meta(b"p")),
        "tag-long": envelope(b"\xff" * 11),
        "varint-long": envelope(tag(9, 0) + b"\x80" * 20 + b"\1"),
        "len-huge": envelope(tag(1, 2) + varint(1 << 62)),
        "len-neg": envelope(tag(1, 2) + varint((1 << 64) - 1)),
        "len-past": envelope(tag(1, 2) + varint(1000) + b"x"),
        "len-4g": envelope(tag(1, 2) + varint(1 << 32)),
        "name-latin": envelope(meta(b"p\xff")),
        "data-latin": envelope(meta(b"p") + field(2, field(1, b"a") + field(2, b"\xff\xfe"))),
        "map-empty": envelope(meta(b"p") + field(2, b"")),
        "map-key": envelope(meta(b"p") + field(2, field(1, b"a"))),
        "map-value": envelope(meta(b"p") + field(2, field(2, b"v"))),
        "map-dup": envelope(
            meta(b"p") + field(2, field(1, b"a") + field(2, b"x")) + field(2, field(1, b"a") + field(2, b"y"))
        ),
        "map-extra": envelope(meta(b"p") + field(2, field(1, b"a") + field(2, b"x") + field(7, b"z"))),
        "map-wire": envelope(meta(b"p") + field(2, tag(1, 0) + b"\1")),
        "meta-twice": envelope(meta(b"p") + meta(b"q")),
        "bool-2": envelope(meta(b"p") + tag(4, 0) + b"\2"),
        "unknown": envelope(meta(b"p") + field(77, b"x")),
        "trailing": good + b"x",
        "trailing0": good + b"\0",
        "raw-twice": good + field(2, meta(b"q")),
        "json-raw": envelope(b'{"metadata":{"name":"p"}}'),
        "time-neg": envelope(field(1, field(1, b"p") + field(8, tag(1, 0) + varint((1 << 64) - 1)))),
        "time-huge": envelope(field(1, field(1, b"p") + field(8, tag(1, 0) + varint(1 << 62)))),
        "generation": envelope(field(1, field(1, b"p") + tag(7, 0) + varint((1 << 64) - 5))),
        "list": envelope(field(2, meta(b"p")), b"ConfigMapList"),
        "deep-owner": envelope(field(1, field(1, b"p") + field(13, b"") * 10000)),
        "nested-envelope": envelope(good),
    }
    for name, raw in pbs.items():
        yield post("pb-" + name, raw, P)
    inner = b""
    for _ in range(1200):
        inner = field(28, inner)
    yield post(
        "pb-crd-not-deep",
        envelope(
            field(1, field(1, b"x.y.z")) + field(2, field(7, field(1, b"v1") + field(4, field(1, inner)))),
            b"CustomResourceDefinition",
            b"apiextensions.k8s.io/v1",
        ),
        P,
        path=CRDS,
    )
    yield post("crpb", envelope(meta(b"p"), b"Things", (G + "/v1").encode()), P, path=CRS)


def content_types():
    z = gzip.compress(b'{"metadata":{"name":"z"}}', mtime=0)
    yield post("gzip-body", z, headers=[("Content-Encoding", "gzip")])
    yield post("gzip-bomb", gzip.compress(b" " * (100 << 20), mtime=0), headers=[("Content-Encoding", "gzip")])
    yield post("encoding-unknown", '{"metadata":{"name":"z"}}', headers=[("Content-Encoding", "nope")])
    for i, ct in enumerate(
        [
            "text/plain",
            "",
            ";",
            "application/json;",
            "application/json; charset=utf-8",
            "application/json;charset=latin1",
            "APPLICATION/JSON",
            "application/json, text/plain",
            "application/jsonx",
            "application/*",
            "*/*",
            " application/json",
            "application/json ; x",
            "application/json;a=b;a=c",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "application/yaml;x=y",
            "text/yaml",
            "application/x-yaml",
            P + ";x=y",
            "application/apply-patch+yaml",
            MP,
            "a" * 3000,
            b"\xff\xfe",
            "application/cbor",
            "application/json\t",
        ]
    ):
        for where, path in (("core", MAPS), ("cr", CRS)):
            body = '{"metadata":{"name":"ct"}}' if where == "core" else json.dumps(SETUP[-1][1]).replace('"t"', '"ct"')
            yield post(f"ctype-{where}-{i}", body, ct, path=path)
    yield ("ctype-twice", "POST", MAPS + "?dryRun=All", [(CT, J), (CT, Y)], '{"metadata":{"name":"ct"}}')
    yield ("ctype-missing", "POST", MAPS + "?dryRun=All", [], '{"metadata":{"name":"ct"}}')
    yield ("ctype-missing-yaml", "POST", MAPS + "?dryRun=All", [], "metadata: {name: x}")
    yield ("ctype-patch-missing", "PATCH", MAPS + "/a", [], "{}")
    for i, ct in enumerate(
        [
            J,
            Y,
            P,
            "text/plain",
            MP + ";charset=utf-8",
            MP.upper(),
            "application/merge-patch",
            JP + ",x",
            ";",
            "application/apply-patch+cbor",
        ]
    ):
        yield (f"ctype-patch-{i}", "PATCH", MAPS + "/a?dryRun=All", [(CT, ct)], "{}")
        yield (f"ctype-patch-cr-{i}", "PATCH", CRS + "/t?dryRun=All", [(CT, ct)], "{}")
    yield ("ctype-patch-cr-strategic", "PATCH", CRS + "/t?dryRun=All", [(CT, SP)], "{}")
    yield ("ctype-put-text", "PUT", MAPS + "/a?dryRun=All", [(CT, "text/plain")], "{}")
    yield ("ctype-delete-text", "DELETE", MAPS + "/a?dryRun=All", [(CT, "text/plain")], "{}")


def accepted_types():
    for i, accept in enumerate(
        [
            "",
            "*",
            "*/*",
            "text/html",
            "text/*",
            "application/*",
            "application/json;q=0",
            "application/json;q=x",
            "application/json;q=2",
            "application/json;q=-1",
            ";",
            ",",
            ",,,",
            "application/json,",
            ";q=1",
            "a" * 5000,
            ",".join(["text/html"] * 3000),
            ",".join(["text/html"] * 70) + ",application/json",
            "application/json;as=Table",
            "application/json;as=Table;v=v1;g=nope",
            "application/json;as=Table;v=v9;g=meta.k8s.io",
            "application/json;as=Nope;v=v1;g=meta.k8s.io",
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            P + ";as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=",
            "application/json;v=v1",
            "application/json;stream=watch",
            "application/json;charset=x",
            "application/cbor",
            "application/json/x",
            b"\xff",
            "APPLICATION/JSON",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "application/json;as=Table;v=v1;g=meta.k8s.io;as=PartialObjectMetadata",
            'application/json;as="Table";v=v1;g=meta.k8s.io',
            "application/json;pretty=1",
            "application/json;a;b",
            Y,
            P,
        ]
    ):
        for where, path in (
            ("get", MAPS + "/a"),
            ("list", MAPS),
            ("cr", CRS + "/t"),
            ("crlist", CRS),
            ("watch", MAPS + "?watch=1&timeoutSeconds=1"),
            ("crwatch", CRS + "?watch=1&timeoutSeconds=1"),
            ("version", "/version"),
            ("apis", "/apis"),
            ("group", "/apis/apps"),
            ("resources", "/api/v1"),
            ("404", MAPS + "/nope"),
            ("openapi", "/openapi/v3"),
        ):
            yield (f"accept-{where}-{i}", "GET", path, [("Accept", accept)], None)
    yield ("accept-twice", "GET", MAPS + "/a", [("Accept", "text/html"), ("Accept", J)], None)
    yield ("accept-encoding", "GET", MAPS + "/a", [("Accept-Encoding", "nope;q=x, gzip;q=-1,,,")], None)


def users():
    for i, value in enumerate(
        [
            "Bearer",
            "Bearer ",
            "Bearer  testtoken",
            "bearer testtoken",
            "BEARER testtoken",
            "Bearer testtoken ",
            "Bearer testtoken x",
            "Bearer\ttesttoken",
            "Basic dGVzdA==",
            "Basic ***",
            "testtoken",
            "Bearer " + "x" * 9000,
            b"Bearer \xff\xfe",
            "Bearer testtoken,usertoken",
            "Bearer a.b.c",
            "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.",
            "Bearer "
            + token(b'{"alg":"RS256","kid":"x"}')
            + "."
            + token(b'{"iss":"https://kubernetes.default.svc"}')
            + ".AAAA",
            "Digest x",
            "",
            ",",
            "Bearer null",
            "Negotiate x",
        ]
    ):
        yield (f"auth-{i}", "GET", MAPS + "/a", [("Authorization", value)], None)
    yield (
        "auth-twice",
        "GET",
        MAPS + "/a",
        [("Authorization", "Bearer usertoken"), ("Authorization", "Bearer testtoken")],
        None,
    )
    yield (
        "auth-twice2",
        "GET",
        MAPS + "/a",
        [("Authorization", "Bearer testtoken"), ("Authorization", "Bearer usertoken")],
        None,
    )
    yield (
        "auth-bad-twice",
        "GET",
        MAPS + "/a",
        [("Authorization", "Bearer nope"), ("Authorization", "Bearer testtoken")],
        None,
    )
    I = "Impersonate-"
    for i, hs in enumerate(
        [
            [(I + "User", "")],
            [(I + "User", "x")],
            [(I + "Group", "g")],
            [(I + "Uid", "u")],
            [(I + "Extra-a", "b")],
            [(I + "User", "x"), (I + "User", "system:admin")],
            [(I + "User", "x"), (I + "Group", "system:masters")],
            [(I + "User", "x"), (I + "Group", "")],
            [(I + "User", b"\xff")],
            [(I + "User", "x"), (I + "Extra-%zz", "b")],
            [(I + "User", "x"), (I + "Extra-a%2fb", "b")],
            [(I + "User", "x"), (I + "Extra-", "b")],
            [(I + "User", "x" * 5000)],
            [(I + "User", "system:serviceaccount:a:b")],
            [(I + "User", "system:serviceaccount:a")],
            [(I + "User", "system:serviceaccount:A:b"), (I + "Group", "system:masters")],
            [(I + "User", "system:anonymous")],
            [(I + "User", "x")] + [(I + "Group", f"g{j}") for j in range(50)] + [(I + "Group", "system:masters")],
            [(I + "Nope", "x")],
            [(I + "User", "x"), (I + "Uid", "u"), (I + "Uid", "v"), (I + "Group", "system:masters")],
            [(I + "User", "x/y z"), (I + "Group", "system:masters")],
            [(I + "User", "system:node:n")],
            [("impersonate-user", "x"), ("IMPERSONATE-GROUP", "system:masters")],
            [(I + "User", "x"), (I + "Group", "system:authenticated"), (I + "Group", "system:masters")],
        ]
    ):
        yield (f"imp-{i}", "GET", MAPS + "/a", hs, None)
        yield (f"imp-user-{i}", "GET", MAPS + "/a", [("Authorization", "Bearer usertoken"), *hs], None)


def headers():
    yield ("head-huge", "GET", MAPS + "/a", [("X-Big", "x" * 60000)], None)
    yield ("head-1.5m", "GET", MAPS + "/a", [("X-Big", "x" * 1500000)], None)
    yield ("head-90", "GET", MAPS + "/a", [(f"X-{i}", "x") for i in range(90)], None)
    yield ("head-latin", "GET", MAPS + "/a", [("X-A", b"\xff\xfe"), ("User-Agent", b"\xff" * 300)], None)
    yield (
        "head-agent-long",
        "PATCH",
        MAPS + "/a?dryRun=All",
        [(CT, MP), ("User-Agent", "x" * 10000)],
        '{"data":{"z":"1"}}',
    )
    yield (
        "head-te",
        "POST",
        MAPS + "?dryRun=All",
        [(CT, J), ("Transfer-Encoding", "chunked")],
        b'19\r\n{"metadata":{"name":"i"}}\r\n0\r\n\r\n',
    )
    yield (
        "head-te-bad",
        "POST",
        MAPS + "?dryRun=All",
        [(CT, J), ("Transfer-Encoding", "chunked")],
        b'zz\r\n{"metadata":{"name":"i"}}\r\n0\r\n\r\n',
    )
    yield ("head-te-unknown", "POST", MAPS + "?dryRun=All", [(CT, J), ("Transfer-Encoding", "nope")], b"{}")
    yield ("head-cl-bad", "POST", MAPS + "?dryRun=All", [(CT, J), ("Content-Length", "x")], b"{}")
    yield ("head-cl-neg", "POST", MAPS + "?dryRun=All", [(CT, J), ("Content-Length", "-1")], b"{}")
    yield (
        "head-cl-twice",
        "POST",
        MAPS + "?dryRun=All",
        [(CT, J), ("Content-Length", "2"), ("Content-Length", "3")],
        b"{}",
    )
    yield ("head-expect", "POST", MAPS + "?dryRun=All", [(CT, J), ("Expect", "nope")], b'{"metadata":{"name":"i"}}')
    yield ("head-upgrade", "GET", MAPS + "/a", [("Connection", "Upgrade"), ("Upgrade", "nope")], None)
    yield (
        "head-ifnone",
        "GET",
        MAPS + "/a",
        [("If-None-Match", '"x"'), ("Range", "bytes=0-1"), ("If-Modified-Since", "x")],
        None,
    )
    yield ("head-method-override", "GET", MAPS + "/a", [("X-HTTP-Method-Override", "DELETE")], None)
    yield (
        "head-forwarded",
        "GET",
        MAPS + "/a",
        [
            ("X-Forwarded-For", "x"),
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("Authorization", "Bearer usertoken"),
        ],
        None,
    )
    yield (
        "noauth-remote",
        "GET",
        MAPS + "/a",
        [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")],
        None,
    )


def queries():
    queries = [
        "limit=x",
        "limit=-1",
        "limit=",
        "limit=99999999999999999999",
        "limit=1.5",
        "limit=0x10",
        "limit=+1",
        "limit= 1",
        "limit=1&limit=x",
        "limit=x&limit=1",
        "limit=9223372036854775807",
        "limit=1_0",
        "limit=01",
        "continue=x",
        "continue=",
        "continue=%00",
        "continue=" + "A" * 5000,
        "continue=" + token(b"{}"),
        "continue=" + token(b'{"v":"meta.k8s.io/v1"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":-5,"start":"a"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":0,"start":"a"}'),
        "continue=" + token(b'{"v":"v0","rv":5,"start":"a"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":99999999,"start":"a"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":"5","start":"a"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":5,"start":"../../secrets"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":5,"start":""}'),
        "continue=" + token(b"[]"),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":1e3,"start":"a"}'),
        "continue=" + token(b'{"v":"meta.k8s.io/v1","rv":5,"start":"a","x":1} z'),
        "continue=a&resourceVersion=5",
        "continue=a&limit=x",
        "continue=!!&limit=1",
        "resourceVersion=x",
        "resourceVersion=-1",
        "resourceVersion=",
        "resourceVersion=1.0",
        "resourceVersion=0x1",
        "resourceVersion=18446744073709551616",
        "resourceVersion=18446744073709551615",
        "resourceVersion=9223372036854775808",
        "resourceVersion=+1",
        "resourceVersion=00",
        "resourceVersion= ",
        "resourceVersion=1&resourceVersion=x",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=x",
        "resourceVersion=1&resourceVersionMatch=x",
        "resourceVersion=1&resourceVersionMatch=",
        "resourceVersion=1&resourceVersionMatch=exact",
        "resourceVersion=x&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=x",
        "labelSelector=",
        "labelSelector=a",
        "labelSelector=!a",
        "labelSelector=!!a",
        "labelSelector=a%3D",
        "labelSelector=%3Db",
        "labelSelector=a%3D%3D%3Db",
        "labelSelector=a in",
        "labelSelector=a+in+",
        "labelSelector=a+in+()",
        "labelSelector=a+in+(b",
        "labelSelector=a+in+(b,,c)",
        "labelSelector=a+in+(,)",
        "labelSelector=a+notin+b",
        "labelSelector=a+In+(b)",
        "labelSelector=a>1",
        "labelSelector=a>x",
        "labelSelector=a>1.5",
        "labelSelector=a<99999999999999999999",
        "labelSelector=a%3E%3D1",
        "labelSelector=a,,b",
        "labelSelector=,a",
        "labelSelector=a,",
        "labelSelector=,",
        "labelSelector=a%20b",
        "labelSelector=-a",
        "labelSelector=a/b/c",
        "labelSelector=A/b",
        "labelSelector=/a",
        "labelSelector=a/",
        "labelSelector=a%3D-b",
        "labelSelector=a%3Db%20c",
        "labelSelector=" + "a" * 64,
        "labelSelector=" + "a" * 254 + "/b",
        "labelSelector=a%3D" + "b" * 64,
        "labelSelector=%00",
        "labelSelector=%C3%A9",
        "labelSelector=%FF",
        "labelSelector=a%3D%22b%22",
        "labelSelector=(a)",
        "labelSelector=)",
        "labelSelector=((((",
        "labelSelector=in",
        "labelSelector=in+in+(in)",
        "labelSelector=notin",
        "labelSelector=a!",
        "labelSelector=a!b",
        "labelSelector=a!%3D",
        "labelSelector=a&labelSelector=!!b",
        "labelSelector=!!b&labelSelector=a",
        "labelSelector=a+exists",
        "labelSelector=!a%3Db",
        "labelSelector=a;b",
        "labelSelector=a|b",
        "labelSelector=" + quote(",".join(f"k{i}=v" for i in range(10000))),
        "labelSelector=" + quote("a in (" + ",".join(f"v{i}" for i in range(10000)) + ")"),
        "labelSelector=" + quote(",".join(["a=b"] * 5000)),
        "labelSelector=" + "(" * 50000,
        "fieldSelector=",
        "fieldSelector=x",
        "fieldSelector=x%3Dy",
        "fieldSelector=metadata.name",
        "fieldSelector=metadata.name%3D",
        "fieldSelector=metadata.name%3D%3Da",
        "fieldSelector=metadata.name!%3Da",
        "fieldSelector=metadata.name%3D%3D%3Da",
        "fieldSelector=metadata.name%3Da%3Db",
        "fieldSelector=metadata.name%3Da%5C",
        "fieldSelector=metadata.name%3Da%5Cx",
        "fieldSelector=metadata.name%3Da%5C%2Cb",
        "fieldSelector=%3Da",
        "fieldSelector=,",
        "fieldSelector=metadata.name%3Da,",
        "fieldSelector=,metadata.name%3Da",
        "fieldSelector=metadata.uid%3Da",
        "fieldSelector=metadata.labels%3Da",
        "fieldSelector=Metadata.name%3Da",
        "fieldSelector=metadata.name in (a)",
        "fieldSelector=metadata.name%3Da,metadata.name%3Db",
        "fieldSelector=metadata.namespace%3Dother",
        "fieldSelector=metadata.namespace!%3Dhostile",
        "fieldSelector=%FF%3Da",
        "fieldSelector=metadata.name%3D%FF",
        "fieldSelector=!metadata.name%3Da",
        "fieldSelector=metadata.name%3Da/b",
        "fieldSelector=metadata.name%3D..",
        "fieldSelector=" + quote(",".join(f"metadata.name!=v{i}" for i in range(5000))),
        "timeoutSeconds=x",
        "timeoutSeconds=-1",
        "timeoutSeconds=",
        "timeoutSeconds=1.5",
        "timeoutSeconds=99999999999999999999",
        "timeoutSeconds=0",
        "timeout=x",
        "timeout=-1s",
        "timeout=1",
        "timeout=1h1h",
        "timeout=0s",
        "timeout=99999999h",
        "timeout=1s&timeout=x",
        "timeout=1ns",
        "watch=x",
        "watch=",
        "watch=TRUE&timeoutSeconds=1",
        "watch=2&timeoutSeconds=1",
        "watch=0",
        "watch=f",
        "watch=yes&timeoutSeconds=1",
        "watch&timeoutSeconds=1",
        "watch=1&watch=0&timeoutSeconds=1",
        "watch=0&watch=1",
        "WATCH=1",
        "watch=%FF",
        "allowWatchBookmarks=x",
        "allowWatchBookmarks=",
        "sendInitialEvents=true",
        "sendInitialEvents=x",
        "sendInitialEvents=false",
        "sendInitialEvents=",
        "dryRun=All",
        "dryRun=x",
        "pretty=x",
        "pretty=1",
        "pretty=",
        "foo=bar",
        "%zz=1",
        "a=%zz",
        "limit=%zz",
        "limit=1;watch=1",
        "=",
        "&&&",
        "?",
        "a" * 7000,
        "&".join(f"p{i}=1" for i in range(20000)),
        "&".join(["limit=1"] * 5000),
        "includeObject=x",
        "includeObject=None",
        "exact=true",
        "export=true",
        "shardSelector=x",
        "shardSelector=",
        "ignoreStoreReadErrorWithClusterBreakingPotential=true",
    ]
    for i, q in enumerate(queries):
        yield (f"q-list-{i}", "GET", MAPS + "?" + q.replace(" ", "%20"), [], None)
        if not q.startswith(("watch", "timeoutS")):
            yield (f"q-watch-{i}", "GET", MAPS + "?watch=1&timeoutSeconds=1&" + q.replace(" ", "%20"), [], None)
        yield (f"q-cr-{i}", "GET", CRS + "?" + q.replace(" ", "%20"), [], None)
        yield (f"q-get-{i}", "GET", MAPS + "/a?" + q.replace(" ", "%20"), [], None)
        yield (f"q-pod-{i}", "GET", NS + "/pods?" + q.replace(" ", "%20"), [], None)
    for i, q in enumerate(
        [
            "sendInitialEvents=true",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=x",
            "resourceVersion=-1",
            "resourceVersion=99999999",
            "continue=x",
            "limit=x",
            "timeoutSeconds=0",
            "timeoutSeconds=x",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&limit=1&allowWatchBookmarks=true",
        ]
    ):
        yield (f"watch-{i}", "GET", MAPS + "?watch=1&timeoutSeconds=1&" + q, [], None)
        yield (f"watch-cr-{i}", "GET", CRS + "?watch=1&timeoutSeconds=1&" + q, [], None)


def write_queries():
    wq = [
        "dryRun=",
        "dryRun=x",
        "dryRun=all",
        "dryRun=All&dryRun=All",
        "dryRun=All&dryRun=x",
        "dryRun=None",
        "dryRun=true",
        "fieldManager=",
        "dryRun=All&fieldManager=" + "x" * 129,
        "dryRun=All&fieldManager=" + "x" * 128,
        "dryRun=All&fieldManager=%00",
        "dryRun=All&fieldManager=%C3%A9",
        "dryRun=All&fieldManager=%FF",
        "dryRun=All&fieldManager=a%0Ab",
        "dryRun=All&fieldManager=a&fieldManager=b",
        "dryRun=All&fieldValidation=x",
        "dryRun=All&fieldValidation=Strict&fieldValidation=Ignore",
        "dryRun=All&force=true",
        "dryRun=All&force=x",
        "dryRun=All&force=",
        "dryRun=All&propagationPolicy=x",
        "dryRun=All&pretty=x",
        "dryRun=All&timeout=x",
        "dryRun=All&resourceVersion=x",
        "dryRun=All&watch=1",
        "dryRun=All&watch=x",
    ]
    for i, q in enumerate(wq):
        yield (f"wq-post-{i}", "POST", f"{MAPS}?{q}", [(CT, J)], {"metadata": {"name": "a"}})
        yield (f"wq-put-{i}", "PUT", f"{MAPS}/a?{q}", [(CT, J)], {"metadata": {"name": "b"}})
        yield (f"wq-patch-{i}", "PATCH", f"{MAPS}/a?{q}", [(CT, MP)], {"metadata": {"name": "b"}})
        yield (f"wq-crpatch-{i}", "PATCH", f"{CRS}/t?{q}", [(CT, MP)], {"metadata": {"name": "b"}})


def deletions():
    dq = [
        "dryRun=All",
        "dryRun=x",
        "dryRun=",
        "dryRun=All&propagationPolicy=x",
        "dryRun=All&propagationPolicy=",
        "dryRun=All&propagationPolicy=orphan",
        "dryRun=All&orphanDependents=true",
        "dryRun=All&orphanDependents=x",
        "dryRun=All&orphanDependents=true&propagationPolicy=Foreground",
        "dryRun=All&gracePeriodSeconds=x",
        "dryRun=All&gracePeriodSeconds=-1",
        "dryRun=All&gracePeriodSeconds=-2",
        "dryRun=All&gracePeriodSeconds=",
        "dryRun=All&gracePeriodSeconds=99999999999999999999",
        "dryRun=All&propagationPolicy=Orphan&propagationPolicy=x",
        "dryRun=All&preconditions=x",
        "dryRun=All&resourceVersion=5",
    ]
    for i, q in enumerate(dq):
        yield (f"dq-{i}", "DELETE", f"{MAPS}/a?{q}", [], None)
        yield (f"dq-cr-{i}", "DELETE", f"{CRS}/t?{q}", [], None)
        yield (f"dq-all-{i}", "DELETE", f"{NS}/secrets?{q}", [], None)
    db = [
        "null",
        "{}",
        "[]",
        "5",
        '"x"',
        "{",
        '{"kind":"Pod","apiVersion":"v1"}',
        '{"kind":"Nope"}',
        '{"kind":"DeleteOptions","apiVersion":"v9"}',
        '{"kind":"DeleteOptions","apiVersion":"apps/v1"}',
        '{"kind":"DeleteOptions"}',
        '{"dryRun":"All"}',
        '{"dryRun":["x"]}',
        '{"dryRun":["All","All"]}',
        '{"dryRun":[null]}',
        '{"gracePeriodSeconds":"x"}',
        '{"gracePeriodSeconds":-5}',
        '{"gracePeriodSeconds":1.5}',
        '{"gracePeriodSeconds":1e3}',
        '{"propagationPolicy":"x"}',
        '{"propagationPolicy":5}',
        '{"orphanDependents":true,"propagationPolicy":"Orphan"}',
        '{"orphanDependents":"x"}',
        '{"preconditions":{"uid":"x"}}',
        '{"preconditions":{"uid":5}}',
        '{"preconditions":{"resourceVersion":"x"}}',
        '{"preconditions":{"resourceVersion":5}}',
        '{"preconditions":[]}',
        '{"preconditions":null}',
        '{"nope":1}',
        '{"gracePeriodSeconds":1,"gracePeriodSeconds":2}',
        '{"ignoreStoreReadErrorWithClusterBreakingPotential":"x"}',
        '{"ignoreStoreReadErrorWithClusterBreakingPotential":true}',
        '{"dryRun":[]}x',
        deep(5000),
    ]
    for i, b in enumerate(db):
        yield (f"db-{i}", "DELETE", f"{MAPS}/nope", [(CT, J)], b)
        yield (
            (f"db-dry-{i}", "DELETE", f"{MAPS}/a?dryRun=All", [(CT, J)], b if b != "{}" else '{"dryRun":["All"]}')
            if any(w in b for w in ("dryRun",)) or i == 1
            else (f"db-cr-{i}", "DELETE", f"{CRS}/nope", [(CT, J)], b)
        )
        yield (f"db-all-{i}", "DELETE", f"{NS}/secrets", [(CT, J)], b)
    for name, raw in {
        "good": envelope(tag(1, 0) + b"\0", b"DeleteOptions"),
        "empty-env": b"k8s\0",
        "kind": envelope(b"", b"Pod"),
        "trunc": envelope(b"\x0a\xff", b"DeleteOptions"),
    }.items():
        yield (f"db-pb-{name}", "DELETE", f"{MAPS}/nope", [(CT, P)], raw)
    yield ("db-yaml", "DELETE", f"{MAPS}/nope", [(CT, Y)], "gracePeriodSeconds: x")
    yield ("db-yaml-bomb", "DELETE", f"{MAPS}/nope", [(CT, Y)], BOMB)
    yield ("db-big", "DELETE", f"{MAPS}/nope", [(CT, J)], b" " * (4 << 20))


def names_and_paths():
    names = [
        "A",
        "a_b",
        "a.b",
        ".",
        "..",
        "...",
        "-a",
        "a-",
        "a" * 253,
        "a" * 254,
        "a" * 10000,
        "a%20b",
        "a%2Fb",
        "a%252Fb",
        "a%00b",
        "a%0Ab",
        "%FF",
        "%C3%A9",
        "%zz",
        "%",
        "a%",
        "a;b",
        "a:b",
        "a@b",
        "a!b",
        "a$b",
        "a'b",
        "(a)",
        "a*",
        "a,b",
        "a=b",
        "a+b",
        "~",
        "a|b",
        "a%5Cb",
        "a%3Fb",
        "a%23b",
        "%2e%2e",
        "%2e",
        "a//",
        "a/",
        "a/b",
        "a/status/x",
        "a/status",
        "a/nope",
        "a/..",
        "../a",
        "./a",
        "a/.",
        "a%2F..%2Fb",
        "a/scale",
        "a/status/",
        "a/STATUS",
    ]
    for i, n in enumerate(names):
        yield (f"name-get-{i}", "GET", f"{MAPS}/{n}", [], None)
        yield (f"name-cr-{i}", "GET", f"{CRS}/{n}", [], None)
        yield (f"name-put-{i}", "PUT", f"{MAPS}/{n}", [(CT, J)], {"metadata": {}})
        yield (f"name-del-{i}", "DELETE", f"{MAPS}/{n}?dryRun=All", [], None)
        yield (f"name-ns-{i}", "GET", f"/api/v1/namespaces/{n}/configmaps", [], None)
        yield (f"name-post-{i}", "POST", f"{MAPS}/{n}?dryRun=All", [(CT, J)], {"metadata": {"name": "x"}})
        yield (f"name-grp-{i}", "GET", f"/apis/{n}/v1/things", [], None)
        yield (f"name-ver-{i}", "GET", f"/api/{n}/pods", [], None)
        yield (f"name-res-{i}", "GET", f"{NS}/{n}", [], None)
        yield (f"name-crres-{i}", "GET", f"/apis/{G}/v1/namespaces/hostile/{n}", [], None)
    for i, n in enumerate(
        [
            "",
            "A",
            "a_b",
            "a.b",
            "..",
            "a/b",
            "a%b",
            "a" * 253,
            "a" * 254,
            "a b",
            "\u00e9",
            "a\0",
            " a",
            "a ",
            "-",
            "a..b",
            "a/",
        ]
    ):
        yield (f"bname-{i}", "POST", MAPS + "?dryRun=All", [(CT, J)], {"metadata": {"name": n}})
        yield (
            f"bname-cr-{i}",
            "POST",
            CRS + "?dryRun=All",
            [(CT, J)],
            {"apiVersion": G + "/v1", "kind": "Things", "metadata": {"name": n}},
        )
        yield (f"bname-ns-{i}", "POST", "/api/v1/namespaces?dryRun=All", [(CT, J)], {"metadata": {"name": n}})
        yield (
            f"bname-role-{i}",
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All",
            [(CT, J)],
            {"metadata": {"name": n}, "rules": []},
        )
    paths = [
        "",
        "/",
        "//",
        "/api",
        "/api/",
        "//api",
        "/api//v1",
        "/api/v1/",
        "/api/v2",
        "/API/v1",
        "/api/v1/Pods",
        "/api/v1/pods/",
        "/api/v1/pods//",
        "/api/v1/pod",
        "/api/v1/namespaces/hostile/nodes",
        "/api/v1/nodes/a/b/c",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces/hostile//configmaps",
        "/api/v1/namespaces/hostile/configmaps//a",
        "/api/v1/../v1/pods",
        "/api/v1/./pods",
        "/api/v1/pods/..",
        "/../api/v1/pods",
        "/api/v1/namespaces/hostile/../hostile/configmaps/a",
        "/%61pi/v1/pods",
        "/api%2Fv1/pods",
        "/api/v1/namespaces/hostile%2Fconfigmaps",
        "/apis",
        "/apis/",
        "/apis/apps/",
        "/apis/apps/v9",
        "/apis/apps/v1/",
        "/apis/apps/v1/nope",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/nope/v1/x",
        f"/apis/{G}",
        f"/apis/{G}/v9",
        f"/apis/{G}/v9/things",
        f"/apis/{G}/v1/nope",
        f"/apis/{G}/v1/things/t",
        f"{CRS}/t/nope",
        f"{CRS}/t/status/x",
        f"{CRS}/t/scale",
        f"{CRS}/",
        f"{CRS}//",
        "/api/v1/watch",
        "/api/v1/watch/",
        "/api/v1/watch/nope",
        "/api/v1/watch/watch/pods",
        "/api/v1/watch/namespaces/hostile/configmaps/nope/x",
        "/api/v1/proxy/nodes/x",
        "/api/v1/redirect/nodes/x",
        "/version/",
        "/version/x",
        "/healthz/",
        "/healthz/nope",
        "/livez/nope",
        "/readyz/ping/x",
        "/metrics/",
        "/openapi/v2/x",
        "/openapi/v3/x",
        "/openapi/v3/apis/nope/v1",
        "/openapi/v3/../v2",
        "/openapi",
        "/logs",
        "/debug/pprof/",
        "/swagger.json",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/a" * 5000,
        "/" * 5000,
        "/api/v1/namespaces/hostile/configmaps/a/a/a/a/a/a",
        "/api/v1?watch=1",
        "*",
        "http://x/api/v1/pods",
        "/api/v1/namespaces/hostile/configmaps/a?a?b",
        "/api/v1/pods%",
        "/api/v1/pods%00",
        "/api/v1/pods\\x",
        "/apis/apps/v1/namespaces/hostile/configmaps",
        "/api/v1/deployments",
        "/api/v1/bindings",
        "/api/v1/namespaces/hostile/bindings",
        "/api/v1/componentstatuses",
        "/api/v1/componentstatuses/nope",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews/x",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/apiregistration.k8s.io/v1/apiservices/nope",
    ]
    for i, p in enumerate(paths):
        for m in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if m == "DELETE" and p.rstrip("/").endswith(
                ("pods", "configmaps", "nodes", "apiservices", "things", "Pods")
            ):
                continue
            if m == "DELETE" and ("/configmaps/a" in p or "configmaps//a" in p):
                continue
            yield (
                f"path-{i}-{m}",
                m,
                p + ("?dryRun=All" if m != "GET" and "?" not in p else ""),
                [(CT, MP if m == "PATCH" else J)] if m in ("POST", "PUT", "PATCH") else [],
                "{}" if m in ("POST", "PUT", "PATCH") else None,
            )
    for m in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "FOO", "PROPFIND", "M" * 3000, "LIST", "WATCH"):
        for n, p in (
            ("map", MAPS + "/a"),
            ("maps", MAPS),
            ("cr", CRS + "/t"),
            ("crs", CRS),
            ("version", "/version"),
            ("apis", "/apis"),
            ("healthz", "/healthz"),
            ("nope", "/nope"),
            ("openapi", "/openapi/v2" if m != "HEAD" else "/openapi/v3"),
        ):
            yield (f"method-{m[:10]}-{n}", m, p, [], None)


def patches():
    jps = {
        "null": "null",
        "empty": "",
        "obj": "{}",
        "str": '"x"',
        "empty-arr": "[]",
        "arr-null": "[null]",
        "arr-int": "[1]",
        "arr-empty": "[{}]",
        "no-path": '[{"op":"add","value":1}]',
        "no-value": '[{"op":"add","path":"/data/z"}]',
        "op-int": '[{"op":1,"path":"/a"}]',
        "path-int": '[{"op":"add","path":1,"value":1}]',
        "path-rel": '[{"op":"add","path":"data","value":1}]',
        "path-empty": '[{"op":"replace","path":"","value":{}}]',
        "path-empty-add": '[{"op":"add","path":"","value":{"metadata":{"name":"a"}}}]',
        "path-empty-rm": '[{"op":"remove","path":""}]',
        "path-slash": '[{"op":"add","path":"/","value":1}]',
        "path-tilde": '[{"op":"add","path":"/data/a~2","value":"x"}]',
        "path-tilde-end": '[{"op":"add","path":"/data/a~","value":"x"}]',
        "path-deep": json.dumps([{"op": "add", "path": "/x" * 5000, "value": 1}]),
        "path-dots": '[{"op":"add","path":"/data/../x","value":"1"}]',
        "test-fail": '[{"op":"test","path":"/data/k","value":"w"}]',
        "test-ok": '[{"op":"test","path":"/data/k","value":"v"}]',
        "test-type": '[{"op":"test","path":"/data","value":5}]',
        "test-missing": '[{"op":"test","path":"/x/y","value":5}]',
        "test-novalue": '[{"op":"test","path":"/data/k"}]',
        "test-root": '[{"op":"test","path":"","value":{}}]',
        "copy-root": '[{"op":"copy","from":"","path":"/data/x"}]',
        "copy-missing": '[{"op":"copy","from":"/x","path":"/data/x"}]',
        "copy-nofrom": '[{"op":"copy","path":"/data/x"}]',
        "move-into-self": '[{"op":"move","from":"/data","path":"/data/x"}]',
        "move-root": '[{"op":"move","from":"","path":"/x"}]',
        "move-same": '[{"op":"move","from":"/data/k","path":"/data/k"}]',
        "move-missing": '[{"op":"move","from":"/data/q","path":"/data/x"}]',
        "remove-missing": '[{"op":"remove","path":"/data/q"}]',
        "remove-name": '[{"op":"remove","path":"/metadata/name"}]',
        "remove-meta": '[{"op":"remove","path":"/metadata"}]',
        "remove-kind": '[{"op":"remove","path":"/kind"}]',
        "remove-uid": '[{"op":"remove","path":"/metadata/uid"}]',
        "kind": '[{"op":"replace","path":"/kind","value":"Secret"}]',
        "meta-null": '[{"op":"replace","path":"/metadata","value":null}]',
        "meta-str": '[{"op":"replace","path":"/metadata","value":"x"}]',
        "root-null": '[{"op":"replace","path":"","value":null}]',
        "root-arr": '[{"op":"replace","path":"","value":[]}]',
        "name": '[{"op":"replace","path":"/metadata/name","value":"b"}]',
        "ns": '[{"op":"replace","path":"/metadata/namespace","value":"b"}]',
        "rv-old": '[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]',
        "rv-bad": '[{"op":"replace","path":"/metadata/resourceVersion","value":"x"}]',
        "rv-int": '[{"op":"replace","path":"/metadata/resourceVersion","value":1}]',
        "uid": '[{"op":"replace","path":"/metadata/uid","value":"x"}]',
        "data-int": '[{"op":"replace","path":"/data/k","value":5}]',
        "data-null": '[{"op":"replace","path":"/data/k","value":null}]',
        "data-arr": '[{"op":"replace","path":"/data","value":[]}]',
        "unknown-field": '[{"op":"add","path":"/data/z","value":"1","nope":1}]',
        "dup-op": '[{"op":"add","op":"remove","path":"/data/k","value":"1"}]',
        "Op-case": '[{"OP":"add","PATH":"/data/z","Value":"1"}]',
        "op-upper": '[{"op":"ADD","path":"/data/z","value":"1"}]',
        "trail": "[] x",
        "index-neg": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/-1","value":"c/d"}]',
        "index-big": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/9999999999","value":"c/d"}]',
        "index-past": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/2","value":"c/d"}]',
        "index-lead0": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/01","value":"c/d"}]',
        "index-plus": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/+0","value":"c/d"}]',
        "index-dash-rm": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"remove","path":"/metadata/finalizers/-"}]',
        "index-neg-rm": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"remove","path":"/metadata/finalizers/-1"}]',
        "index-str": '[{"op":"add","path":"/metadata/finalizers","value":["a/b"]},{"op":"add","path":"/metadata/finalizers/x","value":"c/d"}]',
        "into-str": '[{"op":"add","path":"/data/k/x","value":"c"}]',
        "into-null": '[{"op":"add","path":"/nope/x","value":"c"}]',
        "ops-10000": json.dumps([{"op": "add", "path": "/data/z", "value": "1"}] * 10000),
        "ops-10001": json.dumps([{"op": "add", "path": "/data/z", "value": "1"}] * 10001),
        "grow": json.dumps(
            [{"op": "add", "path": "/data/z", "value": "x" * 1000}]
            + [{"op": "copy", "from": "/data", "path": f"/x{i}"} for i in range(100)]
        ),
        "bomb": json.dumps(
            [{"op": "add", "path": "/x", "value": {"a": "x" * 100}}]
            + [{"op": "copy", "from": "/x", "path": f"/x/k{i}"} for i in range(30)]
        ),
        "bomb-deep": json.dumps(
            [{"op": "add", "path": "/x", "value": {}}]
            + [{"op": "copy", "from": "/x", "path": "/x/" + "a/" * i + "a"} for i in range(20)]
        ),
        "value-deep": '[{"op":"add","path":"/data/z","value":%s}]' % deep(12000),
    }
    for name, b in jps.items():
        yield patch("jp-" + name, b, JP)
        if len(b) < 3000:
            yield patch(
                "jp-cr-" + name, b.replace("/data/", "/spec/any/").replace('"/data"', '"/spec"'), JP, CRS + "/t"
            )
    mps = {
        "null": "null",
        "empty": "",
        "arr": "[]",
        "str": '"x"',
        "int": "5",
        "bad": "{",
        "empty-obj": "{}",
        "meta-null": '{"metadata":null}',
        "name-null": '{"metadata":{"name":null}}',
        "kind-null": '{"kind":null}',
        "av": '{"apiVersion":"apps/v1"}',
        "kind": '{"kind":"Secret"}',
        "uid-null": '{"metadata":{"uid":null}}',
        "rv-null": '{"metadata":{"resourceVersion":null}}',
        "rv-old": '{"metadata":{"resourceVersion":"1"}}',
        "rv-0": '{"metadata":{"resourceVersion":"0"}}',
        "ct-null": '{"metadata":{"creationTimestamp":null}}',
        "data-null": '{"data":null}',
        "data-str": '{"data":"x"}',
        "data-k-null": '{"data":{"k":null}}',
        "data-k-int": '{"data":{"k":5}}',
        "data-k-obj": '{"data":{"k":{"a":null}}}',
        "nested-null": '{"data":{"z":{"a":{"b":null}}}}',
        "mf-null": '{"metadata":{"managedFields":null}}',
        "mf-empty": '{"metadata":{"managedFields":[]}}',
        "mf-bad": '{"metadata":{"managedFields":[{}]}}',
        "mf-one-empty": '{"metadata":{"managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"Nope"}]}}',
        "dup": '{"data":{"z":"1","z":"2"}}',
        "unknown": '{"nope":1}',
        "deep": deep(12000),
        "deep-100": deep(100),
        "labels-null": '{"metadata":{"labels":null}}',
        "labels-bad": '{"metadata":{"labels":{"a b":"c"}}}',
        "dt": '{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}',
        "dt-bad": '{"metadata":{"deletionTimestamp":5}}',
        "grace": '{"metadata":{"deletionGracePeriodSeconds":5}}',
        "big": json.dumps({"data": {"z": "x" * 1100000}}),
        "trail": "{} {}",
        "yaml": "data: {z: x}",
        "ns": '{"metadata":{"namespace":"other"}}',
        "gn": '{"metadata":{"generateName":"x"}}',
        "own": '{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"x","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"y","name":"b","uid":"2","controller":true}]}}',
    }
    for name, b in mps.items():
        yield patch("mp-" + name, b, MP)
        yield patch("sp-" + name, b, SP)
        if len(b) < 200000:
            yield patch("mp-cr-" + name, b.replace('"data"', '"spec"'), MP, CRS + "/t")
        yield (
            patch("mp-strict-" + name, b, MP, q="?dryRun=All&fieldValidation=Strict")
            if name in ("dup", "unknown")
            else patch("mp-none-" + name, b, MP, MAPS + "/nope")
        )
    sps = {
        "dir-bad": '{"$patch":"nope"}',
        "dir-int": '{"$patch":5}',
        "dir-delete": '{"$patch":"delete"}',
        "dir-replace": '{"$patch":"replace"}',
        "dir-merge": '{"$patch":"merge"}',
        "data-replace": '{"metadata":{"$patch":"replace","labels":{"a":"b"}}}',
        "meta-delete": '{"metadata":{"$patch":"delete"}}',
        "spec-delete": '{"spec":{"$patch":"delete"}}',
        "spec-replace": '{"spec":{"$patch":"replace"}}',
        "list-nokey": '{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}',
        "list-null": '{"spec":{"template":{"spec":{"containers":[null]}}}}',
        "list-int": '{"spec":{"template":{"spec":{"containers":[5]}}}}',
        "list-str": '{"spec":{"template":{"spec":{"containers":"x"}}}}',
        "list-obj": '{"spec":{"template":{"spec":{"containers":{}}}}}',
        "list-keynull": '{"spec":{"template":{"spec":{"containers":[{"name":null}]}}}}',
        "list-keyint": '{"spec":{"template":{"spec":{"containers":[{"name":5}]}}}}',
        "list-keyobj": '{"spec":{"template":{"spec":{"containers":[{"name":{}}]}}}}',
        "list-del": '{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}}}',
        "list-del-none": '{"spec":{"template":{"spec":{"containers":[{"name":"zz","$patch":"delete"}]}}}}',
        "list-del-nokey": '{"spec":{"template":{"spec":{"containers":[{"$patch":"delete"}]}}}}',
        "list-replace": '{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"}]}}}}',
        "list-replace2": '{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"n","image":"x"}]}}}}',
        "list-dirbad": '{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"x"}]}}}}',
        "list-dup": '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"1"},{"name":"c","image":"2"}]}}}}',
        "rk": '{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name"]}]}}}}',
        "rk-str": '{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":"x"}]}}}}',
        "rk-int": '{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":[5]}]}}}}',
        "rk-missing": '{"spec":{"template":{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"},"$retainKeys":["name"]}]}}}}',
        "rk-strategy": '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}',
        "rk-noretain": '{"spec":{"$retainKeys":["x"]}}',
        "dp": '{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"]}}',
        "dp-str": '{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}',
        "dp-obj": '{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}',
        "dp-noslash": '{"metadata":{"$deleteFromPrimitiveList":["x"]}}',
        "dp-empty": '{"metadata":{"$deleteFromPrimitiveList/":["x"]}}',
        "dp-map": '{"metadata":{"$deleteFromPrimitiveList/labels":["x"]}}',
        "dp-nofield": '{"metadata":{"$deleteFromPrimitiveList/nope":["x"]}}',
        "dp-list": '{"spec":{"template":{"spec":{"$deleteFromPrimitiveList/containers":["c"]}}}}',
        "so": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}]}}}}',
        "so-bad": '{"spec":{"template":{"spec":{"$setElementOrder/containers":"x"}}}}',
        "so-int": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[5]}}}}',
        "so-nokey": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"x":1}]}}}}',
        "so-mismatch": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"n","image":"x"}]}}}}',
        "so-order": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"n"},{"name":"c"}],"containers":[{"name":"n","image":"x"}]}}}}',
        "so-dup": '{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"c"}]}}}}',
        "so-noslash": '{"spec":{"$setElementOrder":["x"]}}',
        "so-nofield": '{"spec":{"$setElementOrder/nope":["x"]}}',
        "so-prim": '{"metadata":{"$setElementOrder/finalizers":["b/c","a/b"],"finalizers":["b/c","a/b"]}}',
        "ports-dup": '{"spec":{"template":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":1,"protocol":"UDP"},{"containerPort":1,"name":"x"}]}]}}}}',
        "ports-str": '{"spec":{"template":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":"x"}]}]}}}}',
        "unknown": '{"spec":{"$nope":1}}',
        "unknown2": '{"spec":{"nope":1}}',
        "spec-null": '{"spec":null}',
        "spec-int": '{"spec":5}',
        "spec-arr": '{"spec":[]}',
        "template-null": '{"spec":{"template":null}}',
        "sel": '{"spec":{"selector":{"matchLabels":{"x":"y"}}}}',
        "replicas-str": '{"spec":{"replicas":"x"}}',
        "replicas-f": '{"spec":{"replicas":1.5}}',
        "replicas-big": '{"spec":{"replicas":3000000000}}',
        "replicas-neg": '{"spec":{"replicas":-1}}',
        "replicas-1.0": '{"spec":{"replicas":1.0}}',
        "replicas-neg0": '{"spec":{"replicas":-0.0}}',
        "env-null": '{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":null}]}]}}}}',
        "tol": '{"spec":{"template":{"spec":{"tolerations":[{"key":5}]}}}}',
        "args": '{"spec":{"template":{"spec":{"containers":[{"name":"c","args":[1]}]}}}}',
        "merge-in-atomic": '{"spec":{"template":{"spec":{"containers":[{"name":"c","args":[{"$patch":"replace"},"x"]}]}}}}',
        "deep-merge": json.dumps(
            {"spec": {"template": {"spec": {"containers": [{"name": f"n{i}", "image": "x"} for i in range(3000)]}}}}
        ),
    }
    for name, b in sps.items():
        yield patch("spd-" + name, b, SP, APPS + "/deployments/d")
        yield (
            patch("mpd-" + name, b, MP, APPS + "/deployments/d")
            if len(b) < 20000
            else patch("spd2-" + name, b, SP, APPS + "/deployments/d")
        )


def wrong_types():
    values = {
        "null": None,
        "true": True,
        "int": 5,
        "neg": -7,
        "float": 1.5,
        "str": "x",
        "a": "a",
        "empty": "",
        "arr": [],
        "arr1": ["x"],
        "arrnull": [None],
        "dups": ["x", "x"],
        "arr4": ["a", "b", "c", "d"],
        "obj": {},
        "obj1": {"k": "x"},
        "objs": [{"k": "x"}],
        "objdup": [{"k": "x"}, {"k": "x"}],
        "objnok": [{"v": 1}],
        "big": 2**62,
        "huge": 1e30,
        "long": "a" * 11,
        "evil": "a" * 9 + "!",
        "date": "2024-01-01T00:00:00Z",
        "neg0": -0.0,
        "big32": 3000000000,
        "ints": {"a": 1, "b": 2, "c": 3, "d": 4},
        "emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "X!"}},
        "embmeta": {"apiVersion": "v1", "kind": "Pod", "metadata": 5},
    }
    for f in THING["properties"]["spec"]["properties"]:
        for n, v in values.items():
            yield (
                "crtype-%s-%s" % (f, n),
                "POST",
                CRS + "?dryRun=All",
                [(CT, J)],
                {"apiVersion": G + "/v1", "kind": "Things", "metadata": {"name": "x"}, "spec": {f: v}},
            )
    for n, v in values.items():
        for f in ("spec", "status", "metadata", "extra"):
            yield (
                f"crtop-{f}-{n}",
                "POST",
                CRS + "?dryRun=All",
                [(CT, J)],
                {"apiVersion": G + "/v1", "kind": "Things", "metadata": {"name": "x"}, f: v},
            )
        for f in (
            "name",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "managedFields",
            "generation",
            "creationTimestamp",
            "uid",
            "resourceVersion",
            "generateName",
            "namespace",
            "deletionGracePeriodSeconds",
            "selfLink",
            "nope",
        ):
            yield (
                f"crmeta-{f}-{n}",
                "POST",
                CRS + "?dryRun=All",
                [(CT, J)],
                {"apiVersion": G + "/v1", "kind": "Things", "metadata": {"name": "x", f: v}},
            )
        yield (
            f"crstatus-{n}",
            "PUT",
            CRS + "/t/status?dryRun=All",
            [(CT, J)],
            {"apiVersion": G + "/v1", "kind": "Things", "metadata": {"name": "t"}, "status": v},
        )


def definitions():
    nested = {"type": "string"}
    for _ in range(40):
        nested = {"type": "object", "properties": {"a": nested}}
    yield definition("deep-40", nested)
    notdeep = {"enum": [1]}
    for _ in range(30):
        notdeep = {"not": notdeep}
    yield definition("not-deep", {"type": "object", **notdeep})
    yield definition("wide", with_spec({f"f{i}": {"type": "string"} for i in range(5000)}))
    for i, p in enumerate(
        [
            "(",
            ")",
            "[",
            "a{",
            "a{1",
            "a{1001}",
            "(a{1000}){1000}",
            "((a{100}){100}){100}",
            "a**",
            "*",
            "+",
            "?",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "\\1",
            "(a)\\1",
            "(?P<n>a)",
            "(?P<n>a)(?P<n>b)",
            "(?<n>a)",
            "\\p{Nope}",
            "\\p{Greek}",
            "\\pL",
            "[[:nope:]]",
            "[[:alpha:]]",
            "[z-a]",
            "\\C",
            "\\Q*\\E",
            "(?i)a",
            "(?z)a",
            "(?U)a+",
            "\\x{110000}",
            "\\xZ",
            "a{2,1}",
            "a{,5}",
            "^(a+)+$",
            "(a|a)*$",
            "\\",
            "[\\",
            "(?",
            "(?:",
            "\\z",
            "\\Z",
            "\\A",
            "\\G",
            "\\K",
            "\\R",
            "x" * 5000,
            "(" * 1001 + ")" * 1001,
            "(" * 500 + ")" * 500,
            "|" * 5000,
            "[" + "a" * 5000 + "]",
            "(x{1000}){10}",
            "\\pN{1000}",
            ".{1000}",
            "\u00e9",
            "[\u00e9-\u4e00]",
            "\0",
            "a{0}",
            "(?s).",
            "[]a]",
            "[^]a]",
            "[a-\\d]",
            "\\8",
            "\\08",
            "(?i)\u017f",
            "a{1}{2}",
            "a{1}*",
            "\\b",
            "(?m)^$",
        ]
    ):
        yield definition(f"pattern-{i}", with_spec({"p": {"type": "string", "pattern": p}}))
        yield definition(
            f"pattern-default-{i}",
            with_spec(
                {"p": {"type": "string", "pattern": p, "default": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}}
            ),
        )
    odd = {
        "ref": {"$ref": "#/x"},
        "ref-self": {"$ref": "#"},
        "schema": {"$schema": "x"},
        "id": {"id": "x"},
        "defs": {"definitions": {"a": {}}},
        "deps": {"dependencies": {"a": ["b"]}},
        "pp": {"patternProperties": {"a": {}}},
        "unique": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        "addfalse": {"type": "object", "additionalProperties": False},
        "addboth": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        },
        "items-arr": {"type": "array", "items": [{"type": "string"}]},
        "no-items": {"type": "array"},
        "no-type": {},
        "type-bad": {"type": "nope"},
        "type-arr": {"type": ["string"]},
        "type-int": {"type": 5},
        "type-null": {"type": "null"},
        "nullable-str": {"type": "string", "nullable": "x"},
        "min-str": {"type": "integer", "minimum": "x"},
        "min-neg": {"type": "string", "minLength": -1},
        "max-neg": {"type": "string", "maxLength": -1},
        "min-gt": {"type": "string", "minLength": 5, "maxLength": 1},
        "multi0": {"type": "number", "multipleOf": 0},
        "multi-neg": {"type": "number", "multipleOf": -1},
        "enum-empty": {"type": "string", "enum": []},
        "enum-type": {"type": "string", "enum": [1]},
        "enum-null": {"type": "string", "enum": [None]},
        "enum-dup": {"type": "string", "enum": ["a", "a"]},
        "enum-obj": {"enum": {}},
        "default-type": {"type": "string", "default": 5},
        "default-null": {"type": "string", "default": None},
        "default-enum": {"type": "string", "enum": ["a"], "default": "b"},
        "default-unknown": {"type": "object", "properties": {}, "default": {"x": 1}},
        "required-int": {"type": "object", "required": [1]},
        "required-dup": {"type": "object", "required": ["a", "a"]},
        "required-str": {"type": "object", "required": "a"},
        "lt-bad": {"type": "array", "x-kubernetes-list-type": "nope", "items": {"type": "string"}},
        "lt-str": {"type": "string", "x-kubernetes-list-type": "set"},
        "lt-map-nokeys": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
        "lt-map-badkey": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["z"],
            "items": {"type": "object"},
        },
        "lt-map-dup": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a", "a"],
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
        },
        "lt-set-obj": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
        "mt-bad": {"type": "object", "x-kubernetes-map-type": "nope"},
        "mt-arr": {"type": "array", "x-kubernetes-map-type": "atomic", "items": {"type": "string"}},
        "ios-type": {"type": "string", "x-kubernetes-int-or-string": True},
        "ios-false": {"x-kubernetes-int-or-string": False},
        "emb-nopreserve": {"type": "object", "x-kubernetes-embedded-resource": True},
        "emb-str": {"type": "string", "x-kubernetes-embedded-resource": True},
        "preserve-false": {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        "preserve-str": {"type": "string", "x-kubernetes-preserve-unknown-fields": True},
        "format-bad": {"type": "string", "format": "nope"},
        "format-int": {"type": "integer", "format": "int128"},
        "all-type": {"type": "string", "allOf": [{"type": "string"}]},
        "any-prop": {"type": "object", "anyOf": [{"properties": {"z": {"type": "string"}}}]},
        "any-default": {"type": "string", "anyOf": [{"default": "x"}]},
        "one-null": {"type": "string", "oneOf": [None]},
        "not-null": {"type": "string", "not": None},
        "props-null": {"type": "object", "properties": {"a": None}},
        "props-arr": {"type": "object", "properties": []},
        "props-str": {"type": "object", "properties": {"a": "x"}},
        "prop-empty": {"type": "object", "properties": {"": {"type": "string"}}},
        "prop-dollar": {"type": "object", "properties": {"$ref": {"type": "string"}}},
        "ext-docs": {"type": "string", "externalDocs": 5},
        "example-deep": {"type": "string", "example": json.loads(deep(60))},
        "excl": {"type": "integer", "exclusiveMinimum": True},
        "excl-int": {"type": "integer", "exclusiveMinimum": 5},
        "min-inf": {"type": "number", "minimum": 1e308},
        "maxitems-neg": {"type": "array", "items": {"type": "string"}, "maxItems": -1},
        "x-unknown": {"type": "string", "x-nope": 1},
        "cel": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
        "cel-bad": {"type": "string", "x-kubernetes-validations": [{"rule": ""}]},
    }
    for n, s in odd.items():
        yield definition(f"odd-{n}", with_spec({"f": s}))
        yield ("crd-root-" + n, "POST", CRDS + "?dryRun=All", [(CT, J)], crd("bombs", s))
    base = crd("bombs", {"type": "object"})

    def edit(id, f):
        c = json.loads(json.dumps(base))
        f(c)
        return (f"crde-{id}", "POST", CRDS + "?dryRun=All", [(CT, J)], c)

    def at(*path):
        def setter(value):
            def go(c):
                o = c
                for p in path[:-1]:
                    o = o[p]
                if value is KeyError:
                    o.pop(path[-1], None)
                else:
                    o[path[-1]] = value

            return go

        return setter

    positions = [
        ("spec",),
        ("spec", "group"),
        ("spec", "scope"),
        ("spec", "names"),
        ("spec", "names", "plural"),
        ("spec", "names", "singular"),
        ("spec", "names", "kind"),
        ("spec", "names", "listKind"),
        ("spec", "names", "shortNames"),
        ("spec", "names", "categories"),
        ("spec", "versions"),
        ("spec", "versions", 0, "name"),
        ("spec", "versions", 0, "served"),
        ("spec", "versions", 0, "storage"),
        ("spec", "versions", 0, "schema"),
        ("spec", "versions", 0, "schema", "openAPIV3Schema"),
        ("spec", "versions", 0, "subresources"),
        ("spec", "versions", 0, "additionalPrinterColumns"),
        ("spec", "versions", 0, "selectableFields"),
        ("spec", "versions", 0, "deprecated"),
        ("spec", "versions", 0, "deprecationWarning"),
        ("spec", "conversion"),
        ("spec", "preserveUnknownFields"),
        ("status",),
        ("metadata", "name"),
    ]
    for p in positions:
        name = ".".join(map(str, p))
        for n, v in {
            "missing": KeyError,
            "null": None,
            "int": 5,
            "str": "x",
            "bad": "-X_!",
            "long": "a" * 300,
            "arr": [],
            "arr1": ["A", "A", ""],
            "arrnull": [None],
            "obj": {},
            "true": True,
            "objs": [{}],
        }.items():
            if p[-1] in range(9) and v is KeyError:
                continue
            yield edit(f"{name}-{n}", at(*p)(v))
    for n, v in {
        "dup-version": [base["spec"]["versions"][0]] * 2,
        "two-storage": [dict(base["spec"]["versions"][0], name=x) for x in ("v1", "v2")],
        "no-storage": [dict(base["spec"]["versions"][0], storage=False)],
        "none-served": [dict(base["spec"]["versions"][0], served=False)],
        "many": [dict(base["spec"]["versions"][0], name=f"v{i}", storage=i == 1) for i in range(1, 500)],
    }.items():
        yield edit("versions-" + n, at("spec", "versions")(v))
    for n, v in {
        "path": ".spec.x[",
        "path2": "x",
        "path3": ".",
        "path4": ".spec['a']",
        "path5": ".spec.*",
        "path6": "..a",
        "path7": ".spec[0]",
        "path8": "." + "a." * 5000 + "a",
        "path9": ".spec[?(@.a)]",
        "path10": ".metadata.name",
        "path11": ".metadata.labels",
        "path12": "",
    }.items():
        yield edit(
            "column-" + n,
            at("spec", "versions", 0, "additionalPrinterColumns")([{"name": "c", "type": "string", "jsonPath": v}]),
        )
        yield edit("select-" + n, at("spec", "versions", 0, "selectableFields")([{"jsonPath": v}]))
        yield edit(
            "scale-" + n,
            at("spec", "versions", 0, "subresources")(
                {"scale": {"specReplicasPath": v, "statusReplicasPath": v, "labelSelectorPath": v}}
            ),
        )
    for n, v in {
        "webhook": {"strategy": "Webhook"},
        "nope": {"strategy": "Nope"},
        "webhook-none": {"strategy": "None", "webhook": {}},
        "webhook-full": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "http://x"}, "conversionReviewVersions": []},
        },
    }.items():
        yield edit("conv-" + n, at("spec", "conversion")(v))


def requests():
    """Yields all requests."""
    yield from json_bodies()
    yield from yaml_bodies()
    yield from protobuf_bodies()
    yield from content_types()
    yield from accepted_types()
    yield from users()
    yield from headers()
    yield from queries()
    yield from write_queries()
    yield from deletions()
    yield from names_and_paths()
    yield from patches()
    yield from wrong_types()
    yield from definitions()
