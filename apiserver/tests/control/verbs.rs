//! Each verb in all its faces, as the table of the tests of `revstore ctl` has them.

use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use revstore_apiserver::control_api::Control;
use revstore_apiserver::{ClockMode, ListenUrl};
use revstore_engine::LeaseId;
use serde_json::Value;

use crate::client::send_to;
use crate::fixture::Fixture;
use crate::table::{Files, Tested, check_effects, check_refusals, check_table, prepare};

/// The verbs of etcd, which a Kubernetes API has not.
const REFUSED: [&str; 2] = ["Alarm", "TermNew"];

impl Tested for Fixture {
    fn control(&self) -> &Control {
        self.server.control().expect("control")
    }

    fn url(&self) -> &str {
        self.server.control_endpoint().expect("a port")
    }

    fn state(&self) -> String {
        let control = Tested::control(self);
        let engine = control.engine();
        let (leases, _) = control.leases(10);
        // What the server writes for itself is not done at a certain revision.
        let state = (
            engine.current_revision().0 >= 99_999,
            engine.compacted_revision().is_some(),
            engine.get("/registry/configmaps/default/a").is_some(),
            leases.len(),
            control.faults().len(),
            control.forks().len(),
            control.point().time,
        );
        format!("{state:?}")
    }
}

/// Runs `revstore-apiserver ctl` with a line of arguments.
fn run(url: &str, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_revstore-apiserver"));
    command.arg("ctl").args(line.split_whitespace());
    command.env("REVSTORE_CONTROL", url);
    command.output().expect("the binary starts")
}

/// A server with a config map, a lease, a rule and a checkpoint.
fn prepared() -> Fixture {
    let fixture = Fixture::new(ClockMode::Manual);
    fixture.put("a", "");
    let engine = fixture.server.engine().expect("a store");
    engine.grant(LeaseId::new(5), 60).expect("a lease");
    prepare(Tested::control(&fixture));
    fixture
}

/// Returns the files of the verbs: the snapshot is that of the store of a server, as an etcd has it.
fn new_files() -> Files {
    let fixture = Fixture::with(ClockMode::Manual, |builder| {
        builder.etcd_listen([ListenUrl::localhost(0)])
    });
    let url = &fixture.server.etcd_endpoints()[0];
    let (status, parts) = send_to(url, "POST", "/v3/maintenance/snapshot", "{}");
    assert_eq!(status, 200, "{parts}");
    let parts = parts.lines().map(|line| {
        let part: Value = serde_json::from_str(line).expect("a line of JSON");
        let blob = part["result"]["blob"].as_str().expect("a part");
        STANDARD.decode(blob).expect("base64")
    });
    Files::new(&fixture, parts.flatten().collect())
}

#[test]
fn each_verb_has_the_same_effect_in_all_faces() {
    check_effects(prepared, &new_files(), run, &REFUSED);
}

#[test]
fn each_verb_refuses_what_it_does_not_know() {
    check_refusals(&prepared(), &new_files(), run);
}

#[test]
fn the_table_has_all_methods_and_all_verbs() {
    check_table(&prepared(), run);
}
