//! Flags without effect, and flags with few supported values.

use crate::{parse, printed, served};

fn check(line: &str, variables: &[(&str, &str)], expected: Result<&[&str], &str>) {
    let outcome = served(parse(line, variables));
    let outcome = outcome.map(|(_, warnings)| warnings);
    let outcome = outcome.map_err(|error| (error.exit_code(), error.to_string()));
    let expected = expected.map(<[&str]>::to_vec);
    match (&outcome, expected) {
        (Ok(warnings), Ok(expected)) if *warnings == expected => {}
        (Err((1, error)), Err(expected)) if error == expected => {}
        (_, expected) => panic!("{line} {variables:?}: {outcome:?}, expected {expected:?}"),
    }
}

#[test]
fn a_value_that_asks_for_a_missing_behavior_causes_a_warning() {
    const WARNING: &[&str] = &["--initial-corrupt-check has no effect: there are no files"];
    check("--initial-corrupt-check", &[], Ok(WARNING));
    check("--experimental-initial-corrupt-check=T", &[], Ok(WARNING));
    let variable = ("ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", "true");
    check("", &[variable], Ok(WARNING));
    check(
        "--snapshot-count=5 --snapshot-count 6",
        &[],
        Ok(&["--snapshot-count has no effect: there are no files"]),
    );
}

#[test]
fn a_value_that_asks_for_nothing_causes_no_warning() {
    for line in [
        "--initial-corrupt-check=F",
        "--unsafe-no-fsync",
        "--unsafe-no-fsync=0",
        "--snapshot-count=10_000",
        "--snapshot-count=0x186a0",
        "--batch-interval=0h",
        "--peer-cert-file=",
        "--discovery=",
        "--initial-cluster-state=new",
    ] {
        check(line, &[], Ok(&[]));
    }
}

#[test]
fn other_values_of_a_flag_with_few_values_are_errors_that_name_the_flag() {
    let expected = "--discovery=http://a:1 is not supported (only the empty text is): there are no other members";
    check("--discovery http://a:1", &[], Err(expected));
    check("", &[("ETCD_DISCOVERY", "http://a:1")], Err(expected));
    check(
        "--initial-cluster-state=existing",
        &[],
        Err(
            "--initial-cluster-state=existing is not supported (only 'new' is): there are no other \
             members",
        ),
    );
    // A value that is none is an error in the use of the command line, as before.
    let error = served(parse("--initial-cluster-state=x", &[])).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn the_help_page_tells_what_has_no_effect() {
    let page = printed(parse("--help", &[])).unwrap();
    for text in [
        "\n  --snapshot-count '100000'\n    Has no effect: there are no files.\n",
        "\n  --initial-cluster-state 'new'\n    Only 'new' is supported: there are no other members.\n",
        "\n  --experimental-initial-corrupt-check\n    The former name of --initial-corrupt-check.\n",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
}

#[test]
fn a_repeated_url_that_is_in_the_list_keeps_the_list() {
    let urls = |line: &str| {
        let (values, _) = served(parse(line, &[])).unwrap();
        revstore_host::net::join_urls(&values.get(&crate::LISTEN_CLIENT_URLS))
    };
    let both = "--listen-client-urls http://a:1,http://b:2";
    assert_eq!(
        urls(&format!("{both} --listen-client-urls http://b:2")),
        "http://a:1,http://b:2"
    );
    assert_eq!(
        urls(&format!("{both} --listen-client-urls http://c:3")),
        "http://c:3"
    );
}
