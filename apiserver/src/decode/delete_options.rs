//! The options of deletions.

use revstore_watch_cache::api::{Preconditions, Query};
use revstore_watch_cache::status::{Status, StatusCause};
use serde_json::Value;

use super::error::json_type;
use super::write_options::{dry_run, refuse};

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their owner.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

impl Propagation {
    /// The values of the option. The last one is only part of the message, as in kube-apiserver.
    const VALUES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "Orphan" => Some(Self::Orphan),
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            _ => None,
        }
    }
}

/// The options of a deletion. Corresponds to `metav1.DeleteOptions`.
///
/// ```
/// use revstore_apiserver::decode::{DeleteOptions, Propagation};
/// use revstore_watch_cache::api::Query;
/// let query = Query::parse("propagationPolicy=Background&gracePeriodSeconds=0");
/// let options = DeleteOptions::from_query(&query)?;
/// assert_eq!(options.propagation, Some(Propagation::Background));
/// assert_eq!(options.grace_period_seconds, Some(0));
/// # Ok::<(), Box<revstore_watch_cache::status::Status>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Whether the deletion is only checked.
    pub dry_run: bool,
    /// The time that the object has to end. Negative values are those of the client.
    pub grace_period_seconds: Option<i64>,
    /// The conditions on the object.
    pub preconditions: Preconditions,
    /// What happens to dependents. `None` is the default of the kind.
    pub propagation: Option<Propagation>,
    /// The old form of `propagation`, never set together with it. See [`Self::effective_propagation`].
    pub orphan_dependents: Option<bool>,
    /// Whether an object that cannot be decoded is deleted.
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// Reads the options of a request without a body.
    ///
    /// # Errors
    /// 400 if a number is malformed, 422 if a value is not supported.
    pub fn from_query(query: &Query) -> Result<Self, Box<Status>> {
        let grace_period_seconds = query
            .integer("gracePeriodSeconds")
            .map_err(|error| Box::new(error.status()))?;
        let mut causes = Vec::new();
        let text = |name: &str| query.first(name).filter(|text| !text.is_empty());
        let mut preconditions = Preconditions::default();
        preconditions.uid = text("uid").map(str::to_owned);
        preconditions.resource_version = text("resourceVersion").map(str::to_owned);
        let options = Self {
            dry_run: false,
            grace_period_seconds,
            preconditions,
            propagation: None,
            orphan_dependents: query.flag("orphanDependents"),
            ignore_store_read_error: query
                .flag("ignoreStoreReadErrorWithClusterBreakingPotential")
                .unwrap_or_default(),
        };
        let has_preconditions = options.preconditions != Preconditions::default();
        let options = options.propagate(query.first("propagationPolicy"), &mut causes);
        options.validate(query.all("dryRun"), has_preconditions, causes)
    }

    /// Reads the options from the object in the body of a request.
    ///
    /// # Errors
    /// 400 if the body is not a `DeleteOptions`, or a field has the wrong type; 422 if a value is not
    /// supported.
    pub fn from_body(body: &Value) -> Result<Self, Box<Status>> {
        let fields = Fields(body);
        if !matches!(body, Value::Object(_) | Value::Null) {
            return Err(mismatch(body, "", "DeleteOptions"));
        }
        let kind = fields.text("kind")?.unwrap_or("DeleteOptions");
        if !matches!(kind, "DeleteOptions" | "") {
            let version = fields.text("apiVersion")?.unwrap_or_default();
            return Err(Box::new(Status::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            ))));
        }
        let mut causes = Vec::new();
        let preconditions = fields.get("preconditions");
        let mut conditions = Preconditions::default();
        if let Some(preconditions) = preconditions {
            if !preconditions.is_object() {
                return Err(mismatch(preconditions, "preconditions", "Preconditions"));
            }
            let preconditions = Fields(preconditions);
            conditions.uid = preconditions.text("uid")?.map(str::to_owned);
            conditions.resource_version = preconditions.text("resourceVersion")?.map(str::to_owned);
        }
        let values: Vec<_> = match fields.get("dryRun") {
            None => Vec::new(),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| match value {
                    Value::String(text) => Ok(text.as_str()),
                    Value::Null => Ok(""),
                    _ => Err(mismatch(value, "dryRun", "string")),
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(mismatch(other, "dryRun", "[]string")),
        };
        let options = Self {
            dry_run: false,
            grace_period_seconds: fields.integer("gracePeriodSeconds")?,
            preconditions: conditions,
            propagation: None,
            orphan_dependents: fields.flag("orphanDependents")?,
            ignore_store_read_error: fields
                .flag("ignoreStoreReadErrorWithClusterBreakingPotential")?
                .unwrap_or_default(),
        };
        let options = options.propagate(fields.text("propagationPolicy")?, &mut causes);
        options.validate(values.into_iter(), preconditions.is_some(), causes)
    }

    /// Returns what happens to dependents, also if it is requested in the old form.
    pub fn effective_propagation(&self) -> Option<Propagation> {
        match self.orphan_dependents {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => self.propagation,
        }
    }

    /// Sets the policy.
    fn propagate(mut self, policy: Option<&str>, causes: &mut Vec<StatusCause>) -> Self {
        let Some(policy) = policy else {
            return self;
        };
        if self.orphan_dependents.is_some() {
            causes.push(StatusCause::invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        self.propagation = Propagation::from_name(policy);
        if self.propagation.is_none() {
            causes.push(StatusCause::not_supported(
                "propagationPolicy",
                policy,
                &Propagation::VALUES,
            ));
        }
        self
    }

    /// Checks the options together.
    fn validate<'a>(
        mut self,
        values: impl Iterator<Item = &'a str>,
        has_preconditions: bool,
        mut causes: Vec<StatusCause>,
    ) -> Result<Self, Box<Status>> {
        self.dry_run = dry_run(values, &mut causes);
        if self.ignore_store_read_error {
            for (set, option) in [
                (self.dry_run, ".dryRun"),
                (self.propagation.is_some(), ".propagationPolicy"),
                (self.orphan_dependents.is_some(), ".orphanDependents"),
                (self.grace_period_seconds.is_some(), ".gracePeriodSeconds"),
                (has_preconditions, ".preconditions"),
            ] {
                if set {
                    causes.push(StatusCause::invalid(
                        "ignoreStoreReadErrorWithClusterBreakingPotential",
                        true,
                        &format!("cannot be set together with {option}"),
                    ));
                }
            }
        }
        refuse("DeleteOptions", causes)?;
        Ok(self)
    }
}

/// The fields of an object; `null` is an unset field.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Box<Status>> {
        let text = |value: &'a Value| {
            value
                .as_str()
                .ok_or_else(|| mismatch(value, name, "string"))
        };
        self.get(name).map(text).transpose()
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Box<Status>> {
        let integer = |value: &Value| value.as_i64().ok_or_else(|| mismatch(value, name, "int64"));
        self.get(name).map(integer).transpose()
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Box<Status>> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| mismatch(value, name, "bool"));
        self.get(name).map(flag).transpose()
    }
}

fn mismatch(value: &Value, field: &str, expected: &str) -> Box<Status> {
    let found = json_type(value);
    Box::new(Status::bad_request(if field.is_empty() {
        format!("json: cannot unmarshal {found} into Go value of type {expected}")
    } else {
        format!(
            "json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type \
             {expected}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use revstore_watch_cache::api::{Preconditions, Query};
    use serde_json::{Value, json};

    use super::{DeleteOptions, Propagation};

    const INVALID: &str = "DeleteOptions.meta.k8s.io \"\" is invalid: ";

    fn query(text: &str) -> Result<DeleteOptions, (u16, String)> {
        DeleteOptions::from_query(&Query::parse(text))
            .map_err(|status| (status.code, status.message))
    }

    fn body(value: &Value) -> Result<DeleteOptions, (u16, String)> {
        DeleteOptions::from_body(value).map_err(|status| (status.code, status.message))
    }

    #[test]
    fn malformed_options_are_refused() {
        let unsupported = "propagationPolicy: Unsupported value: \"Nope\": supported values: \
                           \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
        let invalid = |causes: &str| Err((422, format!("{INVALID}{causes}")));
        assert_eq!(query("propagationPolicy=Nope"), invalid(unsupported));
        assert_eq!(
            body(&json!({"propagationPolicy": "Nope"})),
            invalid(unsupported)
        );
        assert_eq!(query("gracePeriodSeconds=x").unwrap_err().0, 400);
        assert_eq!(
            query("orphanDependents=true&propagationPolicy=Orphan"),
            invalid(
                "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and \
                 deletionPropagation cannot be both set"
            )
        );
        assert_eq!(
            body(&json!({"dryRun": ["x"]})),
            invalid("dryRun: Unsupported value: [\"x\"]: supported values: \"All\"")
        );
        assert_eq!(
            body(&json!({
                "ignoreStoreReadErrorWithClusterBreakingPotential": true,
                "preconditions": {},
            })),
            invalid(
                "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be \
                 set together with .preconditions"
            )
        );
        for value in [
            json!([]),
            json!("x"),
            json!({"kind": "Pod", "apiVersion": "v1"}),
            json!({"kind": 1}),
            json!({"gracePeriodSeconds": "x"}),
            json!({"gracePeriodSeconds": 1.5}),
            json!({"preconditions": []}),
            json!({"preconditions": {"uid": 1}}),
            json!({"dryRun": "All"}),
            json!({"dryRun": [1]}),
            json!({"orphanDependents": "yes"}),
        ] {
            assert_eq!(body(&value).unwrap_err().0, 400, "{value}");
        }
    }

    #[test]
    fn options_are_read_from_queries_and_bodies() {
        assert_eq!(query("").unwrap(), DeleteOptions::default());
        assert_eq!(body(&json!({})).unwrap(), DeleteOptions::default());
        assert_eq!(
            query("resourceVersion=5&uid=u").unwrap().preconditions,
            body(&json!({"preconditions": {"resourceVersion": "5", "uid": "u"}}))
                .unwrap()
                .preconditions
        );
        assert_eq!(query("propagationPolicy=").unwrap_err().0, 422);
        assert_eq!(body(&json!(null)).unwrap(), DeleteOptions::default());
        let options = body(&json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5,
            "propagationPolicy": "Foreground", "dryRun": ["All"],
            "preconditions": {"uid": "u", "resourceVersion": "7"},
        }))
        .unwrap();
        assert_eq!(
            options,
            DeleteOptions {
                dry_run: true,
                grace_period_seconds: Some(5),
                preconditions: Preconditions::default().uid("u").resource_version("7"),
                propagation: Some(Propagation::Foreground),
                orphan_dependents: None,
                ignore_store_read_error: false,
            }
        );
        let old = query("orphanDependents=true").unwrap();
        assert_eq!(old.effective_propagation(), Some(Propagation::Orphan));
        let old = query("orphanDependents=false").unwrap();
        assert_eq!(old.effective_propagation(), Some(Propagation::Background));
        assert_eq!(
            options.effective_propagation(),
            Some(Propagation::Foreground)
        );
    }
}
