//! Values as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{Key, Value, double_to_int};
use crate::fault::{EvaluationError, fail};

/// The largest number up to which each integer is one of those with a fraction.
const EXACT_MAX: i64 = (1 << 53) - 1;

impl Value {
    /// Returns the value as JSON. Numbers without a fraction are integers.
    ///
    /// # Errors
    /// A part of the value has no form in JSON.
    pub fn to_json(&self) -> Result<Json, EvaluationError> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => match double_to_int(*value) {
                Some(int) if value.fract() == 0.0 && int.abs() <= EXACT_MAX => Json::from(int),
                _ => match Number::from_f64(*value) {
                    Some(number) => Json::Number(number),
                    None => return fail("a number is not finite"),
                },
            },
            Self::String(text) => Json::from(&**text),
            Self::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
            #[expect(clippy::cast_precision_loss, reason = "as kube-apiserver does it")]
            Self::Duration(nanos) => Json::from(format!("{}s", *nanos as f64 / 1e9)),
            Self::Timestamp(time) => Json::from(time.to_string()),
            Self::List(list) => {
                let items = list.iter().map(|item| item.to_json());
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(map) => Json::Object(entries(map)?),
            Self::Object(object) => Json::Object(entries(object.fields())?),
            Self::Optional(Some(value)) => value.to_json()?,
            Self::Unknown(json) => (**json).clone(),
            Self::Invalid(message) => return fail(&**message),
            other => return fail(format!("a value of type {} is no JSON", other.type_name())),
        })
    }
}

fn entries(map: &super::Map) -> Result<JsonMap<String, Json>, EvaluationError> {
    let mut entries: JsonMap<_, _> = map.hidden().clone().into_iter().collect();
    for (key, value) in map.iter() {
        let Key::String(key) = key else {
            return fail(format!(
                "map key {} is of type {}, not string",
                key.to_value(),
                key.to_value().type_name()
            ));
        };
        entries.insert(key.to_string(), value.to_json()?);
    }
    Ok(entries)
}
