//! The hook for panics. It is a property of the process, so it has a test program of its own.

use std::{fs, panic, thread};

use revstore_host::{
    logging::{LogOptions, LogOutput, Logger},
    panics::{Panicked, catch_within_request, count, install_hook, within_request},
};

#[test]
fn panics_are_logged_and_counted_with_their_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let outputs = [LogOutput::File(path.clone())];
    let log = Logger::open(&LogOptions::new().outputs(outputs)).expect("a new file");
    // Without the output of the default hook.
    panic::set_hook(Box::new(|_| {}));
    install_hook(&log);
    assert_eq!(count(), 0);

    let caught = catch_within_request("/a.Service/Outer", || {
        let inner = catch_within_request("/a.Service/Inner", || panic!("the {}", "inner one"));
        assert_eq!(inner, Err::<(), _>(Panicked));
        // The outer request continues.
        panic!("the outer one")
    });
    assert_eq!(caught, Err::<(), _>(Panicked));
    assert_eq!(within_request("/a.Service/Other", || 7), 7);
    let outside = thread::Builder::new().name("worker".to_owned());
    let outside = outside.spawn(|| panic!("outside")).expect("a thread");
    assert!(outside.join().is_err());

    assert_eq!(count(), 3);
    let text = fs::read_to_string(path).expect("a log");
    let lines: Vec<&str> = text.lines().collect();
    let check = |line: &str, parts: &[&str]| {
        for part in parts {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
    };
    check(
        lines[0],
        &[
            r#""level":"error""#,
            r#""msg":"panic""#,
            r#""panic":"the inner one""#,
            r#""location":"host/tests/panics.rs:"#,
            r#""request":"/a.Service/Inner""#,
        ],
    );
    check(
        lines[1],
        &[
            r#""panic":"the outer one""#,
            r#""request":"/a.Service/Outer""#,
        ],
    );
    check(
        lines[2],
        &[
            r#""panic":"outside""#,
            r#""thread":"worker""#,
            r#""request":"""#,
        ],
    );
    assert_eq!(lines.len(), 3);
}
