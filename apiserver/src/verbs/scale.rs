//! The forms of scales.

use std::sync::Arc;

use http::StatusCode;
use revstore_watch_cache::encode::{Form as CacheForm, JsonForm, MetadataForm, TableForm};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{JsonKind, RequestError};
use serde_json::Value;

use crate::catalog::{Origin, Resource};
use crate::http::{Accepted, Answer, Exchange, Form};
use crate::table::{self, Column};
use crate::verbs::read::{encodable, include, not_a_list};

const API_VERSION: &str = "autoscaling/v1";
const KIND: &str = "Scale";

/// Returns an answer with the scale of an object, in the form that the client accepts.
pub(crate) fn shown(
    exchange: &Exchange,
    resource: &Resource,
    accepted: Accepted,
    status: StatusCode,
    scale: JsonObject,
) -> Result<Answer, RequestError> {
    let whole: Arc<dyn CacheForm> = Arc::new(JsonForm::new(API_VERSION, KIND).typed());
    let form: Arc<dyn CacheForm> = match accepted.form {
        Form::MetadataList => {
            return Err(not_a_list(match resource.origin {
                Origin::Builtin => "*autoscaling.Scale",
                Origin::Custom => "*v1.Scale",
            }));
        }
        Form::Metadata => Arc::new(MetadataForm::of(whole).version(accepted.meta_version)),
        Form::Table => {
            let columns = match resource.origin {
                Origin::Builtin => table::columns("autoscaling", KIND),
                Origin::Custom => &table::CUSTOM_SCALE,
            };
            let columns: Vec<_> = columns.iter().map(Column::definition).collect();
            let cells = table::cells("autoscaling", KIND, &scale, resource.rules.seconds());
            let table = TableForm::new(whole, &columns, move |_| cells.clone());
            let table = table.version(accepted.meta_version);
            Arc::new(table.include(include(exchange, Form::Table)?))
        }
        Form::Whole | Form::AggregatedDiscovery => {
            return Ok(Answer::value(status, accepted, &Value::Object(scale)));
        }
    };
    let scale = encodable(resource, &scale, &JsonKind::new(API_VERSION, KIND))?;
    let mut bytes = Vec::new();
    form.write_object(&scale, &mut bytes);
    Answer::json(status, accepted, bytes)
}
