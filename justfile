# The commands of the house. `.ci/run` runs the same ones and does not need `just`: change both.

# Lists the recipes.
default:
    @just --list

# Formats everything.
fmt:
    cargo fmt --all

# Clippy, pedantic, warnings are errors.
lint:
    cargo clippy --workspace --all-targets --features revstore-watch-cache/etcd -- -D warnings

# All tests. Those against the real etcd say so where it is missing; see `etcd`.
test *args:
    cargo test --workspace {{args}}

# Loom models of the engine's protocols, in a target directory of their own: other RUSTFLAGS rebuild everything.
loom *args:
    RUSTFLAGS="--cfg loom -C debug-assertions" LOOM_MAX_PREEMPTIONS=3 cargo test -p loom-tests --profile loom --target-dir target/loom {{args}}

# The documentation, warnings are errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --features revstore-watch-cache/etcd

# Licences, advisories, sources, duplicates. Needs cargo-deny.
deny:
    cargo deny check

# Benchmarks; `just bench --save-baseline main` keeps the numbers to compare with.
bench *args:
    cargo bench -p revstore-benches --bench engine -- {{args}}

# Benchmarks against kept numbers.
bench-baseline baseline="main":
    cargo bench -p revstore-benches --bench engine -- --baseline {{baseline}}

# The same load on revstore, a server that stores nothing, and etcd where there is one: a table.
bench-compare *args:
    cargo build --release -p revstore -p revstore-compare
    cargo run --release -p revstore-compare -- run {{args}}

# Plots of what operations cost as the store grows, into benches/plots.
bench-scaling *args:
    cargo run --release -p revstore-compare -- scaling {{args}}

# Instruction counts against those written down; `just instructions --update` writes them.
instructions *args:
    cargo bench -p revstore-benches --bench instructions -- {{args}}

# The real etcd and etcdctl, into tests/.tools.
etcd:
    scripts/install-etcd.sh

# The tests that compare with the real etcd; they fail where it is missing.
conformance *args: etcd
    REVSTORE_REQUIRE_ETCD=1 cargo test -p revstore-tests {{args}}

# Stock clients of other languages; `--server PATH` takes another server, names of clients only those.
clients *args:
    tests/clients/run {{args}}

# Asks etcd the questions of tests/scenarios and writes down what it answers.
record *args:
    cargo run -p revstore-tests --bin record -- {{args}}

# Which tests cite which clauses of the behaviour specifications, and which clauses none does.
clauses *args:
    cargo run -p revstore-tests --bin clauses -- {{args}}

# The watch cache over a client of etcd: to our server, and to the real one.
cache *args: etcd
    REVSTORE_REQUIRE_ETCD=1 cargo test -p revstore-watch-cache --features etcd --test suite {{args}}

# Random operations, the same to etcd and to ours.
differential *args:
    cargo run --release -p revstore-tests --bin differential -- {{args}}

# Random requests to every method, made by libFuzzer from what it has covered. Needs cargo-fuzz.
fuzz *args:
    cargo fuzz run --sanitizer none requests -- {{args}}

# The engine's stress tests under ThreadSanitizer; CONTRIBUTING.md says what it can tell.
tsan *args:
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" TSAN_OPTIONS="suppressions={{justfile_directory()}}/engine/tests/stress/tsan.supp" cargo test -p revstore-engine --test stress --target x86_64-unknown-linux-gnu --target-dir target/tsan {{args}}

# Everything that has to pass before a change goes in.
ci:
    .ci/run
