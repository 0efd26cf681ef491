#!/usr/bin/env python3
"""Runs the test suites of other projects with revstore-apiserver in the place of kube-apiserver.

usage: suites.py [--assets DIR | --profile PROFILE] [--reference DIR] [--work DIR] [--json FILE] [PROJECT[:PACKAGE]...]

The projects are controller-runtime, cluster-api, karpenter and kube-rs, all of them by default. Their sources are those
of the versions below, from the Go module proxy and crates.io. The servers are those of the directory --assets, which
scripts/envtest-assets.sh makes, or are built with --profile, release by default. --reference names such a directory with a
real kube-apiserver and etcd, with which each suite runs a second time. --work keeps sources and test programs for the next run. The last lines are a table in Markdown; the exit
status says whether a test has failed that is not in the list LEFT, or that the reference passes.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# The time limit of the tests of a package in seconds.
LIMIT = 1200

# The modules and packages of the projects in Go. Modules are unpacked at their paths.
GO = {
    "controller-runtime": {
        "modules": {".": "sigs.k8s.io/controller-runtime@v0.25.2"},
        "packages": [
            "pkg/client", "pkg/cache", "pkg/envtest", "pkg/builder", "pkg/client/apiutil", "pkg/cluster", "pkg/controller",
            "pkg/controller/controllerutil", "pkg/handler", "pkg/internal/controller", "pkg/internal/recorder",
            "pkg/manager", "pkg/manager/internal/integration", "pkg/metrics/filters", "pkg/source", "pkg/webhook",
        ],
    },
    "cluster-api": {
        "modules": {".": "sigs.k8s.io/cluster-api@v1.14.2", "api": "sigs.k8s.io/cluster-api/api@v1.14.2"},
        "packages": [
            "internal/util/ssa/test", "util/patch/test", "core/webhooks/admission/test", "core/reconcilers/machineset",
            "core/reconcilers/machine", "core/reconcilers/cluster", "core/reconcilers/machinedeployment",
            "core/reconcilers/machinehealthcheck", "core/reconcilers/clusterclass", "core/reconcilers/clusterresourceset",
            "core/reconcilers/extensionconfig", "controllers/clustercache", "controllers/crdmigrator",
            "core/reconcilers/topology/cluster",
        ],
    },
    "karpenter": {
        "modules": {".": "sigs.k8s.io/karpenter@v1.14.1"},
        "packages": [
            "pkg/apis/v1", "pkg/controllers/state", "pkg/controllers/nodeclaim/lifecycle",
            "pkg/controllers/node/termination", "pkg/controllers/nodeoverlay", "pkg/controllers/provisioning",
        ],
    },
}
# The packages of kube-rs, with the features that their tests need. Those that need a cluster are marked as ignored.
CLIENT = "client,config,ring,rustls-tls,ws,gzip,jsonpatch,admission,unstable-client,kubelet-debug"
RUST = {
    "kube-rs": {
        "version": "5.0.0",
        "packages": {
            "kube-client": CLIENT, "kube-runtime": "unstable-runtime", "kube": f"{CLIENT},derive,runtime,unstable-runtime",
        },
    },
}
# The packages depend on each other, which archives of packages do not say of tests.
WORKSPACE = """[workspace]
resolver = "2"
members = ["kube-client", "kube-runtime", "kube"]

[patch.crates-io]
kube-client = { path = "kube-client" }
kube-runtime = { path = "kube-runtime" }
kube = { path = "kube" }
"""
KUBE_IN_TESTS = """
[dev-dependencies.kube]
version = "5.0.0"
features = ["derive", "client", "runtime", "ws"]
"""

# The tests that do not pass, with the reasons: parts of their names by project and package.
LEFT = json.loads((HERE / "suites-left.json").read_text())


def run(command, **options):
    return subprocess.run(command, check=True, **options)


def output(command, **options):
    return run(command, stdout=subprocess.PIPE, text=True, **options).stdout


class Assets:
    """A directory for KUBEBUILDER_ASSETS, whose servers are measured."""

    def __init__(self, directory, harness, source):
        self.directory = directory
        measured = directory / "measured"
        measured.mkdir(parents=True)
        for name in ("kube-apiserver", "etcd"):
            (directory / name).symlink_to(harness)
            (measured / name).symlink_to((source / name).resolve())
        (directory / "kubectl").symlink_to((source / "kubectl").resolve())
        self.usage = directory / "usage"

    def environment(self):
        self.usage.unlink(missing_ok=True)
        return {**os.environ, "KUBEBUILDER_ASSETS": str(self.directory), "USAGE": str(self.usage)}

    def used(self):
        """Returns the CPU time of all servers, and the largest memory of a process in MiB: of kube-apiserver, or of our etcd, in
        which the server runs."""
        lines = self.usage.read_text().splitlines() if self.usage.exists() else []
        used = [json.loads(line) for line in lines]
        memory = max((u["memory"] for u in used), default=0)
        return sum(u["cpu"] for u in used), memory / 1024


def unpack(work, project):
    """Copies the modules of a project, so that they can be built in their own directories."""
    directory = work / "src" / project
    if directory.exists():
        return directory
    partial = work / "src" / f".{project}"
    shutil.rmtree(partial, ignore_errors=True)
    for path, module in GO[project]["modules"].items():
        found = json.loads(output(["go", "mod", "download", "-json", module], cwd=work))
        shutil.copytree(found["Dir"], partial / path, dirs_exist_ok=True)
        run(["chmod", "-R", "u+w", str(partial)])
    partial.rename(directory)
    return directory


def build_go(work, project, package):
    directory = unpack(work, project)
    program = work / "bin" / f"{project}-{package.replace('/', '-')}.test"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        run(["go", "test", "-vet=off", "-c", "-o", str(program), f"./{package}"], cwd=directory)
    return program, directory / package


def ginkgo_functions(directory):
    """Returns the names of the test functions that run the specs of Ginkgo."""
    text = "\n".join(file.read_text() for file in directory.glob("*_test.go"))
    bodies = re.findall(r"^func (Test\w+)\(.*?^}", text, re.M | re.S)
    return {
        name for name in bodies
        if re.search(rf"^func {name}\((?:(?!^}}).)*RunSpecs\(", text, re.M | re.S)
    }


def run_go(work, assets, project, package):
    """Returns the outcomes of tests by their names."""
    program, directory = build_go(work, project, package)
    specs = work / "specs.json"
    specs.unlink(missing_ok=True)
    command = [str(program), "-test.v", f"-test.timeout={LIMIT}s"]
    functions = ginkgo_functions(directory)
    if functions:
        command += ["-ginkgo.no-color", f"-ginkgo.json-report={specs}", "-ginkgo.seed=1"]
    log = work / "logs" / f"{assets.directory.name}-{project}-{package.replace('/', '-')}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        code = subprocess.run(
            command, cwd=directory, env=assets.environment(), stdout=out, stderr=subprocess.STDOUT, check=False,
        ).returncode
    outcomes = {}
    for outcome, name in re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", log.read_text(errors="replace"), re.M):
        if name not in functions:
            outcomes[name] = outcome
    # A test with parts is as good as its parts.
    for name in list(outcomes):
        parent = name.rpartition("/")[0]
        while parent:
            outcomes.pop(parent, None)
            parent = parent.rpartition("/")[0]
    for suite in json.loads(specs.read_text()) if specs.exists() else []:
        for spec in suite.get("SpecReports") or []:
            name = " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec.get("LeafNodeText") or ""])
            outcome = {"passed": "PASS", "skipped": "SKIP", "pending": "SKIP"}.get(spec["State"], "FAIL")
            if spec["LeafNodeType"] == "It" or outcome == "FAIL":
                outcomes[name or spec["LeafNodeType"]] = outcome
    if code and "FAIL" not in outcomes.values():
        outcomes[f"(the program: exit status {code})"] = "FAIL"
    return outcomes


def unpack_rust(work, project):
    """Copies the packages of a project, from those that the tests of kube-rs depend on, into one workspace."""
    directory = work / "src" / project
    if directory.exists():
        return directory
    manifest = HERE / "rust" / "Cargo.toml"
    metadata = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", str(manifest)]
    known = {(each["name"], each["version"]): each["manifest_path"] for each in json.loads(output(metadata))["packages"]}
    partial = work / "src" / f".{project}"
    shutil.rmtree(partial, ignore_errors=True)
    for package in RUST[project]["packages"]:
        source = pathlib.Path(known[package, RUST[project]["version"]]).parent
        shutil.copytree(source, partial / package)
    shutil.copy(partial / "kube" / "Cargo.lock", partial)
    (partial / "Cargo.toml").write_text(WORKSPACE)
    for package in ("kube-client", "kube-runtime"):
        with (partial / package / "Cargo.toml").open("a") as out:
            out.write(KUBE_IN_TESTS)
    partial.rename(directory)
    return directory


def cargo_test(work, project, package):
    features = RUST[project]["packages"][package]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(work / "kube-rs")}
    command = ["cargo", "test", "--quiet", "--lib", "--package", package, "--features", features]
    return command, unpack_rust(work, project), environment


def build_rust(work, project, package):
    command, directory, environment = cargo_test(work, project, package)
    run([*command, "--no-run"], cwd=directory, env=environment)


def run_rust(work, assets, harness, project, package):
    cargo, directory, environment = cargo_test(work, project, package)
    environment = {**environment, **assets.environment(), "CARGO_TARGET_DIR": environment["CARGO_TARGET_DIR"]}
    log = work / "logs" / f"{assets.directory.name}-{project}-{package}.log"
    log.parent.mkdir(exist_ok=True)
    # One after the other: some of them list what others create.
    tests = [*cargo, "--", "--ignored", "--test-threads=1", "--format=pretty"]
    with log.open("w") as out:
        code = subprocess.run(
            [str(harness), "with", "timeout", str(LIMIT), *tests],
            cwd=directory, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False,
        ).returncode
    outcomes = {}
    text = log.read_text(errors="replace")
    for name, said in re.findall(r"^test (\S+) (?:- should panic )?\.\.\. (.*)", text, re.M):
        # What a test prints may come before its outcome.
        outcomes[name] = "PASS" if said.strip() == "ok" else "FAIL"
    for name in re.findall(r"^    (\S+)$", text.rpartition("\nfailures:\n")[2], re.M):
        outcomes[name] = "FAIL"
    if code and "FAIL" not in outcomes.values():
        outcomes[f"(the program: exit status {code})"] = "FAIL"
    return outcomes


def measure(tests, assets):
    started = time.monotonic()
    outcomes = tests(assets)
    wall = time.monotonic() - started
    cpu, memory = assets.used()
    return {"outcomes": outcomes, "wall": wall, "cpu": cpu, "memory": memory}


def left_out(project, package, test):
    """Returns the reason why a test does not pass, if there is one."""
    reasons = LEFT.get(f"{project}:{package}", {})
    return next((reason for part, reason in reasons.items() if part in test), None)


def counted(result):
    outcomes = list(result["outcomes"].values())
    run_ones = [outcome for outcome in outcomes if outcome != "SKIP"]
    return f"{run_ones.count('PASS')} of {len(run_ones)}"


def cells(result):
    return [counted(result), f"{result['wall']:.1f}", f"{result['cpu']:.1f}", f"{result['memory']:.0f}"]


def report(project, package, results):
    """Prints the tests that have failed. Returns whether one should have passed."""
    names = sorted({name for result in results.values() for name in result["outcomes"]})
    is_bad = False
    for name in names:
        found = {kind: result["outcomes"].get(name, "absent") for kind, result in results.items()}
        if "FAIL" not in found.values():
            continue
        reason = left_out(project, package, name)
        unexplained = found["ours"] == "FAIL" and reason is None
        is_bad |= unexplained
        mark = "FAILED" if unexplained else "left"
        print(f"{mark}: {project} {package}: {name}: {found}{f': {reason}' if reason else ''}", flush=True)
    return is_bad


def chosen_packages(words):
    everything = {**GO, **RUST}
    for word in words or everything:
        project, _, package = word.partition(":")
        if project not in everything or (package and package not in everything[project]["packages"]):
            sys.exit(f"unknown suite {word!r}")
        for each in [package] if package else everything[project]["packages"]:
            yield project, each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=pathlib.Path)
    parser.add_argument("--profile", default="release", choices=["release", "debug"])
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("suites", nargs="*")
    arguments = parser.parse_args()
    chosen = list(chosen_packages(arguments.suites))
    os.environ["GOTOOLCHAIN"] = "local"
    with tempfile.TemporaryDirectory(prefix="suites-") as temporary:
        temporary = pathlib.Path(temporary)
        work = (arguments.work or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        harness = temporary / "harness"
        run(["go", "build", "-trimpath", "-o", str(harness), "./harness"], cwd=HERE / "envtest")
        assets = arguments.assets or temporary / "built"
        if not arguments.assets:
            run([ROOT / "scripts" / "envtest-assets.sh", assets, arguments.profile], stdout=subprocess.DEVNULL)
        kinds = {"ours": Assets(temporary / "ours", harness, assets)}
        if arguments.reference:
            kinds["reference"] = Assets(temporary / "reference", harness, arguments.reference)
        is_bad, rows, written = False, [], {}
        for project, package in chosen:
            def tests(assets, project=project, package=package):
                if project in RUST:
                    return run_rust(work, assets, harness, project, package)
                return run_go(work, assets, project, package)
            (build_go if project in GO else build_rust)(work, project, package)
            results = {kind: measure(tests, assets) for kind, assets in kinds.items()}
            is_bad |= report(project, package, results)
            row = " | ".join([f"{project} `{package}`", *(cell for result in results.values() for cell in cells(result))])
            print(f"| {row} |", flush=True)
            rows.append(row)
            written[f"{project}:{package}"] = results
        if arguments.json:
            arguments.json.write_text(json.dumps(written, indent=1))
    titles = [f"{kind}: {title}" for kind in kinds for title in ("passed", "wall s", "server CPU s", "memory MiB")]
    print(f"\n| Suite | {' | '.join(titles)} |\n|---{'|---' * len(titles)}|")
    for row in rows:
        print(f"| {row} |")
    sys.exit(1 if is_bad else 0)


if __name__ == "__main__":
    main()
