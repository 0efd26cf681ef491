# Short names for commands. `.ci/run` defines the steps that must pass; a recipe with the name of a
# step runs that step, with further arguments.

# Lists the recipes.
default:
    @just --list

# Runs everything that must pass.
ci:
    .ci/run

# Runs the long checks.
nightly:
    .ci/run nightly

# Formats the code.
fmt:
    cargo fmt --all

# Runs clippy; warnings are errors.
lint *args:
    .ci/run lint {{args}}

# Runs all tests. Tests against the real etcd are skipped, with a message, where it is missing.
test *args:
    cargo test --workspace {{args}}

# Runs the loom models of the engine's protocols.
loom *args:
    .ci/run loom {{args}}

# Runs the stress tests of the engine with random schedules, under shuttle.
shuttle *args:
    .ci/run shuttle {{args}}

# Builds the documentation; warnings are errors.
doc *args:
    .ci/run doc {{args}}

# Checks licences, sources and duplicate versions. Needs cargo-deny.
deny:
    .ci/run deny

# Checks that every published crate can be packaged.
package *args:
    .ci/run package {{args}}

# Builds a static binary and runs it in an empty root directory.
static:
    .ci/run static

# Runs the benchmarks of the engine; `--save-baseline main` saves the numbers for `bench-baseline`.
bench *args:
    cargo bench -p revstore-benches --bench engine -- {{args}}

# Compares with a saved baseline.
bench-baseline baseline="main":
    cargo bench -p revstore-benches --bench engine -- --baseline {{baseline}}

# Puts the same load on revstore, on a null server that stores nothing, and on etcd if it is installed.
bench-compare *args:
    cargo build --release -p revstore -p revstore-compare
    cargo run --release -p revstore-compare -- run {{args}}

# Plots the cost of operations as the store grows, into benches/plots.
bench-scaling *args:
    cargo run --release -p revstore-compare -- scaling {{args}}

# Measures the comparison table of the README and writes it there.
readme-table *args:
    cargo build --release -p revstore -p revstore-compare
    cargo run --release -p revstore-compare -- summary --write README.md {{args}}

# Records the terminal session of the README, docs/session.svg.
readme-session:
    cargo build --release -p revstore
    scripts/record-session.py --out docs/session.svg

# Compares instruction counts with benches/instructions.txt; `--update` writes the file. Needs valgrind.
instructions *args:
    .ci/run instructions {{args}}

# Installs the real etcd and etcdctl into tests/.tools.
etcd:
    .ci/run etcd

# Runs the tests that compare with the real etcd; they fail where it is missing.
conformance *args: etcd
    REVSTORE_REQUIRE_ETCD=1 cargo test -p revstore-tests {{args}}

# Runs the tests of stock clients in other languages; `--server PATH` selects another server.
clients *args:
    tests/clients/run {{args}}

# Runs the tests of the packages for test suites; `go` and others select packages.
sdk *args:
    .ci/run sdk {{args}}

# Installs kubectl 1.20 and 1.36 into tests/.tools.
kubectl:
    .ci/run kubectl

# Runs the tests of stock Kubernetes clients with revstore-apiserver; `--server PATH` selects another build.
kubernetes-clients *args: kubectl
    tests/clients/kubernetes/run {{args}}

# Makes a directory with kube-apiserver, etcd and kubectl for KUBEBUILDER_ASSETS; `debug` after it for a debug build.
envtest-assets directory *args:
    scripts/envtest-assets.sh {{directory}} {{args}}

# Records the session of the README of revstore-apiserver.
apiserver-session: kubectl
    cargo build -p revstore-apiserver
    scripts/list-watch-session.sh --write

# Records the scenarios of tests/scenarios again from etcd; `--check` only compares.
record *args:
    cargo run -p revstore-tests --bin record -- {{args}}

# Lists the clauses of docs/ and the tests that cite them; `--check` fails if a citation is missing.
clauses *args:
    cargo run -p revstore-tests --bin clauses -- {{args}}

# Runs the watch cache over an etcd client: against our server and a real etcd.
cache *args: etcd
    REVSTORE_REQUIRE_ETCD=1 .ci/run cache {{args}}

# Runs random operations on etcd and on our server and compares.
differential *args:
    cargo run --release -p revstore-tests --bin differential -- {{args}}

# Puts random load and disturbances on a server and checks all that its clients see; `--minutes N`, `--seed S`,
# `--server PATH` of another server. The exit status says whether all was right, the last line is JSON.
soak *args:
    cargo build --release -p revstore -p revstore-soak
    cargo run --release -p revstore-soak -- {{args}}

# Sends random requests to every method, or random frames to a connection, guided by coverage. Needs cargo-fuzz.
fuzz target='requests' *args:
    cargo fuzz run --sanitizer none {{target}} -- {{args}}

# Runs the engine's stress tests under ThreadSanitizer.
tsan *args:
    .ci/run tsan {{args}}

# Runs the unit tests of the engine under miri. Needs a nightly toolchain with miri.
miri *args:
    .ci/run miri {{args}}
