//! Rules of faults: from a request to a rule.

use std::time::Duration;

use crate::fault::{Action, FrontSelector, KeySelector, Rule, Selector, Trigger};
use crate::proto;
use crate::proto::fault_add_request::Action as Requested;

use super::answers::{Answer, duration, invalid};

/// Returns the rule of a request.
pub(super) fn rule(request: &proto::FaultAddRequest) -> Answer<Rule> {
    let keys = match (&request.prefix, &request.range) {
        (None, None) => None,
        (Some(prefix), None) => Some(KeySelector::Prefix(prefix.clone())),
        (None, Some(range)) => Some(KeySelector::Range(
            range.key.clone(),
            range.range_end.clone(),
        )),
        (Some(_), Some(_)) => return invalid("prefix and range exclude each other"),
    };
    Ok(Rule {
        selector: Selector {
            methods: request.methods.clone(),
            keys,
            user: request.user.clone(),
            client: request.client.clone(),
            connection: request.connection,
            front: FrontSelector {
                verb: request.verb.clone(),
                resource: request.resource.clone(),
                namespace: request.namespace.clone(),
                name: request.name.clone(),
            },
        },
        trigger: trigger(request)?,
        action: action(request)?,
    })
}

fn trigger(request: &proto::FaultAddRequest) -> Answer<Trigger> {
    let window = request.from_revision.is_some() || request.to_revision.is_some();
    let mut triggers = Vec::new();
    triggers.extend(request.next.map(Trigger::Next));
    triggers.extend(request.every.map(Trigger::Every));
    triggers.extend(request.probability.map(|probability| Trigger::Probability {
        probability,
        seed: request.seed.unwrap_or_default(),
    }));
    triggers.extend(window.then_some(Trigger::Revisions {
        from: request.from_revision,
        to: request.to_revision,
    }));
    if request.seed.is_some() && request.probability.is_none() {
        return invalid("a seed needs a probability");
    }
    match *triggers {
        [] => Ok(Trigger::Always),
        [trigger] => Ok(trigger),
        _ => invalid("next, every, probability and a window of revisions exclude each other"),
    }
}

fn action(request: &proto::FaultAddRequest) -> Answer<Action> {
    let requested = request.action.as_ref();
    if request.stale_revision.is_some() && !matches!(requested, Some(Requested::Stale(true))) {
        return invalid("stale_revision needs stale");
    }
    let parse_error = |text: &str| {
        let failure = text.parse();
        failure.or_else(|error| invalid(format!("{error}")))
    };
    let (is_set, action) = match requested {
        None => return invalid("an action is required, such as error or preset"),
        Some(Requested::Error(text)) => (true, Action::Error(parse_error(text)?)),
        Some(Requested::ErrorAfter(text)) => (true, Action::ErrorAfter(parse_error(text)?)),
        Some(Requested::Preset(name)) => {
            let preset = name.parse().or_else(|error| invalid(format!("{error}")))?;
            (true, Action::Preset(preset))
        }
        Some(Requested::Delay(delay)) => {
            let time: Duration = duration("delay", &delay.time)?;
            let wall = delay.wall;
            (true, Action::Delay { time, wall })
        }
        Some(Requested::Http(http)) => {
            let Ok(status) = u16::try_from(http.status) else {
                return invalid(format!("{} is not a status of HTTP", http.status));
            };
            let retry_after = http.retry_after;
            (
                true,
                Action::Http {
                    status,
                    retry_after,
                },
            )
        }
        Some(Requested::Reset(is_set)) => (*is_set, Action::Reset),
        Some(Requested::BlackHole(is_set)) => (*is_set, Action::BlackHole),
        Some(Requested::Goaway(is_set)) => (*is_set, Action::GoAway),
        Some(Requested::Refuse(is_set)) => (*is_set, Action::Refuse),
        Some(Requested::Hold(is_set)) => (*is_set, Action::Hold),
        Some(Requested::Cut(is_set)) => (*is_set, Action::Cut),
        Some(Requested::CancelCompacted(is_set)) => (*is_set, Action::CancelCompacted),
        Some(Requested::LoseKeepAlive(is_set)) => (*is_set, Action::LoseKeepAlive),
        Some(Requested::Stale(is_set)) => {
            let revision = request.stale_revision;
            (*is_set, Action::Stale { revision })
        }
    };
    if is_set {
        Ok(action)
    } else {
        invalid("an action must be true")
    }
}
