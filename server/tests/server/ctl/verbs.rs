//! Each verb in all its faces: Rust, gRPC, JSON and the command line. A verb that is not in the table fails the tests.

use revstore::Server;
use revstore::control::Control;
use revstore::engine::LeaseId;

use super::table::{Files, Tested, check_effects, check_refusals, check_table, prepare};
use super::{ctl_of, files, run, server};

impl Tested for Server {
    fn control(&self) -> &Control {
        self.control().expect("control")
    }

    fn url(&self) -> &str {
        ctl_of(self)
    }

    fn state(&self) -> String {
        let engine = self.engine();
        let control = self.control().expect("control");
        let (leases, _) = control.leases(10);
        let state = (
            engine.current_revision(),
            engine.compacted_revision(),
            engine.stats().live_keys,
            leases.len(),
            control.faults().len(),
            control.forks().len(),
            control.point().time,
        );
        format!("{state:?}")
    }
}

/// A server with a key, a lease, a rule and a checkpoint.
fn prepared() -> Server {
    let server = server();
    let engine = server.engine();
    engine.put("key", "value").expect("a put");
    engine.grant(LeaseId::new(5), 60).expect("a lease");
    prepare(Tested::control(&server));
    server
}

fn new_files() -> Files {
    let server = prepared();
    Files::new(&server, files::snapshot(&server))
}

#[test]
fn each_verb_has_the_same_effect_in_all_faces() {
    check_effects(prepared, &new_files(), run, &[]);
}

#[test]
fn each_verb_refuses_what_it_does_not_know() {
    check_refusals(&prepared(), &new_files(), run);
}

#[test]
fn the_table_has_all_methods_and_all_verbs() {
    check_table(&server(), run);
}
