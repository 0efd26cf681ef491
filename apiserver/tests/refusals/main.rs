//! Every path, verb, subresource and trick of users without the right: each is refused, no answer tells anything about an
//! object, and the store stays as it is.

mod certificates;
mod escalations;
#[path = "../client/exchange.rs"]
mod exchange;
mod impersonation;
mod requests;
mod setup;
mod users;

use revstore_apiserver::ApiServer;

use requests::{Case, Expected};
use setup::{MARKERS, TestResult, Vault};

/// The least number of cases.
const CASES_MIN: usize = 5_000;
/// The number of failures that a panic shows.
const SHOWN_MAX: usize = 20;

/// Sends the request of a case with further header fields, and returns the status and the whole answer.
fn send(server: &ApiServer, case: &Case, fields: &str) -> (u16, String) {
    let kind = case
        .media_type
        .map_or_else(String::new, |kind| format!("Content-Type: {kind}\r\n"));
    let fields = format!("{fields}{kind}{}", case.fields);
    let answer = exchange::answer(
        server.endpoint(),
        case.method,
        &case.path,
        &fields,
        &case.body,
    );
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_default(), answer)
}

/// Returns what is wrong with the answer to a case.
fn fault(server: &ApiServer, case: &Case, user: &users::Client) -> Option<String> {
    let engine = server.engine().expect("the store is embedded");
    let before = engine.current_revision();
    let (code, answer) = send(server, case, &user.fields);
    let is_expected = match case.expected {
        _ if user.is_unknown => code == 401,
        Expected::Forbidden => code == 403,
        Expected::Refused => (400..500).contains(&code) || code == 301,
    };
    let leak = MARKERS.iter().find(|marker| answer.contains(**marker));
    let what = if !is_expected {
        format!("answered with {code}")
    } else if let Some(leak) = leak {
        format!("the answer has {leak:?}")
    } else if engine.current_revision() != before {
        "the store has changed".to_owned()
    } else {
        return None;
    };
    let (name, fields) = (user.name, case.fields.trim_end());
    Some(format!(
        "{name}: {} {} {fields} {}: {what}",
        case.method, case.path, case.trick
    ))
}

#[test]
fn users_without_the_right_get_nothing() -> TestResult {
    let vault = Vault::start()?;
    let (cases, users) = (requests::all(), users::all(&vault));
    let mut faults = Vec::new();
    let mut count = 0;
    for user in &users {
        for case in &cases {
            if user.is_in_the_name_of_another() && case.has_own_user() {
                continue;
            }
            count += 1;
            faults.extend(fault(&vault.server, case, user));
        }
    }
    assert!(count >= CASES_MIN, "{count} cases");
    let shown = faults[..faults.len().min(SHOWN_MAX)].join("\n");
    assert!(
        faults.is_empty(),
        "{} of {count} cases:\n{shown}",
        faults.len()
    );
    Ok(())
}

#[test]
fn a_refusal_does_not_tell_whether_an_object_exists() -> TestResult {
    let vault = Vault::start()?;
    for user in users::all(&vault) {
        let cases = requests::all().into_iter();
        for case in cases.filter(|case| case.expected == Expected::Forbidden) {
            // Both names have the same length, which protobuf writes.
            let [existing, absent] = [setup::NAME, "xyz"].map(|name| {
                let (code, answer) = send(&vault.server, &case.renamed(name), &user.fields);
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                (code, body.replace(name, "NAME"))
            });
            assert_eq!(existing, absent, "{}: {case:?}", user.name);
        }
    }
    Ok(())
}

#[test]
fn nobody_grants_more_than_they_have() -> TestResult {
    let vault = Vault::start()?;
    let grantor = users::Client::with_token("grantor", "grantor");
    let mut faults = Vec::new();
    let cases = escalations::all();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    for case in &cases {
        faults.extend(fault(&vault.server, case, &grantor));
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    // The same user may grant what they have.
    let case = escalations::allowed_grant();
    let (code, answer) = send(&vault.server, &case, &grantor.fields);
    assert_eq!(code, 201, "{answer}");
    Ok(())
}

#[test]
fn the_same_requests_succeed_with_the_right() -> TestResult {
    // Otherwise the tests above could pass because the requests are wrong.
    let vault = Vault::start()?;
    let admin = users::Client::with_token("admin", "admin");
    let mut succeeded = 0;
    let cases = requests::all();
    // A watch ends by the clock, which stands still; the others would change what the next ones are about.
    let is_read = |case: &&Case| {
        case.method == "GET"
            && case.expected == Expected::Forbidden
            && !["watch", "exec", "proxy"]
                .iter()
                .any(|it| case.path.contains(it))
    };
    let cases: Vec<&Case> = cases.iter().filter(is_read).collect();
    for case in &cases {
        let (code, _) = send(&vault.server, case, &admin.fields);
        succeeded += usize::from((200..300).contains(&code));
        assert!(
            ![401, 403].contains(&code) || case.has_own_user(),
            "{} {}: {code}",
            case.method,
            case.path
        );
    }
    assert!(
        succeeded * 4 >= cases.len(),
        "{succeeded} of {} requests",
        cases.len()
    );
    Ok(())
}
