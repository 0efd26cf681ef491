"""Answers of a server, compared with those that a real kube-apiserver gave to the same requests."""
import json
import ssl
import sys
import urllib.error
import urllib.request

# The methods that are patches of these types.
CONTENT_TYPES = {"PATCH": "application/merge-patch+json", "JSON": "application/json-patch+json",
                 "STRATEGIC": "application/strategic-merge-patch+json", "APPLY": "application/apply-patch+yaml"}
# The characters of a request that are shown beside answers that differ.
SHOWN = 300


class Client:
    """Requests with a token."""

    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/"), token
        self.context = ssl._create_unverified_context()

    def ask(self, method, path, body=None, headers=None):
        """Returns the code, the body and the warnings of an answer. Methods of CONTENT_TYPES are patches."""
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": CONTENT_TYPES.get(method, "application/json"),
                   **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        method = "PATCH" if method in CONTENT_TYPES else method
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, context=self.context, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        text = answer.read()
        try:
            found = json.loads(text)
        except ValueError:
            found = text.decode(errors="replace")
        return answer.status, found, answer.headers.get_all("Warning") or []


def record(path, found):
    """Writes the answers of each scenario, each answer on a line."""
    lines = [f" {json.dumps(name)}: [\n" + ",\n".join("  " + json.dumps(answer) for answer in answers) + "\n ]"
             for name, answers in found.items()]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def compare(path, found, requests, what, reasons=None):
    """Compares the answers of each scenario with the recorded ones, and ends the program: with status 1 if one differs.
    `requests` has the requests of each scenario, which are shown; `what` says what the answers are about. `reasons` says
    of answers, by the scenario and the number, why they differ; they must."""
    with open(path) as file:
        expected = json.load(file)
    if expected.keys() != found.keys():
        sys.exit(f"{path} has other scenarios: {sorted(expected.keys() ^ found.keys())}")
    count, different = 0, 0
    for name, answers in found.items():
        for index, (request, one, other) in enumerate(zip(requests[name], expected[name], answers, strict=True)):
            count += 1
            reason = (reasons or {}).get(f"{name} {index}")
            if reason and one == other:
                different += 1
                print(f"{name} {index} is said to differ ({reason}), and does not")
            if not reason and one != other:
                different += 1
                print(f"{name} {json.dumps(request)[:SHOWN]}:\n  expected {json.dumps(one)}\n  found    {json.dumps(other)}")
    print(f"{count} answers about {what}, {different} differ, {len(reasons or {})} for a reason")
    sys.exit(1 if different else 0)
