//! The controller of jobs that are deleted some time after their end.

use std::sync::Arc;
use std::time::Duration;

use revstore_reflector::{Action, WorkQueue};
use revstore_watch_cache::registry::Propagation;
use serde_json::Value;

use super::client::{Client, Failure};
use super::metadata::{text, value};
use super::monitor::{Change, Monitored, Monitors, Observer};
use crate::table::age::seconds;

/// The number of jobs that are treated at the same time.
pub(super) const WORKERS: usize = 2;

pub(super) struct JobController {
    client: Client,
    monitors: Arc<Monitors>,
    /// The queue of namespaces and names, on the clock of the server.
    queue: WorkQueue<(String, String)>,
}

impl JobController {
    pub(super) fn new(
        client: Client,
        monitors: Arc<Monitors>,
        queue: WorkQueue<(String, String)>,
    ) -> Self {
        queue.list_pending("job", |(namespace, name)| format!("{namespace}/{name}"));
        Self {
            client,
            monitors,
            queue,
        }
    }

    /// Deletes a job whose time is over, or returns when that is.
    pub(super) async fn reconcile(
        self: Arc<Self>,
        (namespace, name): (String, String),
    ) -> Result<Action, Failure> {
        let Some(jobs) = self.monitors.find("batch", "jobs") else {
            return Ok(Action::Done);
        };
        let Some(object) = self.client.get(&jobs, &namespace, &name).await? else {
            return Ok(Action::Done);
        };
        let Some(end) = time_of_deletion(&value(&object)) else {
            return Ok(Action::Done);
        };
        let (now, _) = self.client.front().storage.moment(Duration::ZERO);
        if let Ok(rest @ 1..) = u64::try_from(end.saturating_sub(now)) {
            return Ok(Action::RequeueAfter(Duration::from_secs(rest)));
        }
        let version = object.revision().to_string();
        self.client
            .delete(
                &jobs,
                (&namespace, &name),
                (object.uid(), &version),
                Propagation::Foreground,
            )
            .await?;
        Ok(Action::Done)
    }
}

/// Returns when a job is to be deleted, in seconds since 1970; `None` if it is not finished, is kept, or is being deleted.
fn time_of_deletion(job: &Value) -> Option<i64> {
    let time_to_live = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
    if !text(job, &["metadata", "deletionTimestamp"]).is_empty() {
        return None;
    }
    let mut conditions = job["status"]["conditions"].as_array()?.iter();
    let finished = conditions.find(|condition| {
        condition["status"] == "True"
            && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })?;
    let time = text(finished, &["lastTransitionTime"]);
    Some(seconds(time)?.saturating_add(time_to_live))
}

impl Observer for JobController {
    fn wants(&self, resource: &Monitored) -> bool {
        resource.is("batch", "jobs")
    }

    fn observe(&self, _: &Arc<Monitored>, change: Change<'_>) {
        if let Change::Set(object) = change
            && time_of_deletion(&value(object)).is_some()
        {
            let key = (object.namespace().to_owned(), object.name().to_owned());
            self.queue.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finished_jobs_have_a_time_of_deletion() {
        let job = |ttl: Value, kind: &str, status: &str| {
            json!({"spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": [
                {"type": kind, "status": status, "lastTransitionTime": "1970-01-01T00:01:00Z"}]}})
        };
        for (job, expected) in [
            (job(json!(10), "Complete", "True"), Some(70)),
            (job(json!(0), "Failed", "True"), Some(60)),
            (job(json!(10), "Complete", "False"), None),
            (job(json!(10), "Suspended", "True"), None),
            (job(Value::Null, "Complete", "True"), None),
            (json!({"spec": {"ttlSecondsAfterFinished": 1}}), None),
        ] {
            assert_eq!(time_of_deletion(&job), expected, "{job}");
        }
    }
}
