//! The scale of a custom resource.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::{Map, Value, json};

use crate::custom::schema::kind_of;
use crate::custom::text::quoted;

/// The largest number of replicas.
const REPLICAS_MAX: i64 = i32::MAX as i64;

/// Where the replicas of a custom resource stand in its objects. The mapping from and to `Scale` of
/// `autoscaling/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// The path of the wanted replicas, such as `.spec.replicas`.
    pub spec_path: String,
    /// The path of the replicas that there are.
    pub status_path: String,
    /// The path of the label selector of the replicas, as text.
    pub selector_path: Option<String>,
}

/// Returns the names of fields on a path with dots.
fn fields(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

/// Returns the name that Go gives to the type of a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        other => kind_of(other),
    }
}

/// Returns the value at a path.
///
/// # Errors
/// The text of an error, if something on the path is no object.
fn find<'a>(object: &'a JsonObject, path: &str) -> Result<Option<&'a Value>, String> {
    let fields = fields(path);
    let mut map = object;
    for (at, field) in fields.iter().enumerate() {
        let Some(value) = map.get(*field) else {
            return Ok(None);
        };
        if at + 1 == fields.len() {
            return Ok(Some(value));
        }
        match value {
            Value::Null => return Ok(None),
            Value::Object(below) => map = below,
            other => return Err(wrong_type(&fields[..=at], other, "map[string]interface{}")),
        }
    }
    Ok(None)
}

fn wrong_type(fields: &[&str], value: &Value, expected: &str) -> String {
    let shown = match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let path = fields.join(".");
    format!(
        ".{path} accessor error: {shown} is of the type {}, expected {expected}",
        go_type(value)
    )
}

fn find_integer(object: &JsonObject, path: &str) -> Result<Option<i64>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(value) => match value.as_i64() {
            Some(integer) => Ok(Some(integer)),
            None => Err(wrong_type(&fields(path), value, "int64")),
        },
    }
}

fn find_text<'a>(object: &'a JsonObject, path: &str) -> Result<Option<&'a str>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(wrong_type(&fields(path), value, "string")),
        },
    }
}

impl Scale {
    /// Reads the paths of a definition.
    pub(crate) fn parse(scale: &Value) -> Self {
        let text = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            spec_path: text("specReplicasPath").unwrap_or_default(),
            status_path: text("statusReplicasPath").unwrap_or_default(),
            selector_path: text("labelSelectorPath").filter(|path| !path.is_empty()),
        }
    }

    /// Returns the `Scale` of an object, as a get of the subresource answers it.
    ///
    /// # Errors
    /// 500 if the object does not have the number of replicas, or a field has the wrong type.
    pub fn of(&self, object: &JsonObject) -> Result<JsonObject, RequestError> {
        let missing = format!(
            "the spec replicas field {} does not exist",
            quoted(&self.spec_path)
        );
        match find_integer(object, &self.spec_path) {
            Ok(None) => Err(RequestError::Internal(missing)),
            _ => self.read(object),
        }
    }

    /// Returns the `Scale` of an object that may lack the number of replicas. A patch is applied to it.
    ///
    /// # Errors
    /// 500 if a field has the wrong type.
    pub fn read(&self, object: &JsonObject) -> Result<JsonObject, RequestError> {
        let replicas = find_integer(object, &self.spec_path).map_err(RequestError::Unclassified)?;
        let current =
            find_integer(object, &self.status_path).map_err(RequestError::Unclassified)?;
        let mut status = json!({"replicas": current.unwrap_or_default()});
        if let Some(path) = &self.selector_path
            && let Some(selector) = find_text(object, path).map_err(RequestError::Unclassified)?
            && !selector.is_empty()
        {
            status["selector"] = selector.into();
        }
        let mut metadata = Map::new();
        for name in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            if let Some(value) = object
                .get("metadata")
                .and_then(|metadata| metadata.get(name))
            {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        let mut scale = Map::new();
        scale.insert("kind".into(), "Scale".into());
        scale.insert("apiVersion".into(), "autoscaling/v1".into());
        scale.insert("metadata".into(), metadata.into());
        scale.insert(
            "spec".into(),
            // JSON leaves out the number 0.
            match replicas {
                Some(replicas) if replicas != 0 => json!({"replicas": replicas}),
                _ => json!({}),
            },
        );
        scale.insert("status".into(), status);
        Ok(scale)
    }

    /// Sets the replicas of an object to those of a `Scale`. A resource version of the `Scale` becomes
    /// that of the object, as a precondition.
    ///
    /// # Errors
    /// 400 if the `Scale` does not have the number of replicas, and 500 if the object cannot have it.
    pub fn apply(&self, object: &mut JsonObject, scale: &JsonObject) -> Result<(), RequestError> {
        let spec = scale.get("spec").filter(|spec| !spec.is_null());
        let replicas = match spec.and_then(|spec| spec.get("replicas")) {
            // A Scale without a number has 0, unless the object did not have one either.
            None | Some(Value::Null) => {
                if !matches!(find_integer(object, &self.spec_path), Ok(Some(_))) {
                    let path = quoted(&self.spec_path);
                    let message = format!("the spec replicas field {path} cannot be empty");
                    return Err(RequestError::BadRequest(message));
                }
                0
            }
            Some(value) => value
                .as_i64()
                .filter(|replicas| i32::try_from(*replicas).is_ok())
                .ok_or_else(|| {
                    let found = value.as_i64().map_or_else(|| kind_of(value).to_owned(), |number| format!("number {number}"));
                    RequestError::BadRequest(format!(
                        "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {found} into \
                         Go struct field ScaleSpec.spec.replicas of type int32"
                    ))
                })?,
        };
        let fields = fields(&self.spec_path);
        let mut map = &mut *object;
        for (at, field) in fields.iter().enumerate() {
            if at + 1 == fields.len() {
                map.insert((*field).to_owned(), replicas.into());
                break;
            }
            let below = map.entry(*field).or_insert_with(|| json!({}));
            let Value::Object(below) = below else {
                let path = fields[..=at].join(".");
                let message = format!(
                    "value cannot be set because .{path} is not a map[string]interface{{}}"
                );
                return Err(RequestError::Unclassified(message));
            };
            map = below;
        }
        let version = scale
            .get("metadata")
            .and_then(|metadata| metadata.get("resourceVersion"));
        if let Some(version) = version
            .and_then(Value::as_str)
            .filter(|version| !version.is_empty())
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("resourceVersion".into(), version.into());
        }
        Ok(())
    }

    /// Returns what is wrong with the wanted replicas of an object.
    pub(crate) fn spec_errors(&self, object: &JsonObject) -> Vec<StatusCause> {
        replicas_error(object, &self.spec_path)
            .into_iter()
            .collect()
    }

    /// Returns what is wrong with the replicas that there are, and with their selector.
    pub(crate) fn status_errors(&self, object: &JsonObject) -> Vec<StatusCause> {
        let mut causes: Vec<_> = replicas_error(object, &self.status_path)
            .into_iter()
            .collect();
        if let Some(path) = &self.selector_path
            && let Err(error) = find_text(object, path)
        {
            causes.push(StatusCause::invalid(FieldPath::new(path), "", &error));
        }
        causes
    }
}

fn replicas_error(object: &JsonObject, path: &str) -> Option<StatusCause> {
    let (replicas, error) = match find_integer(object, path) {
        Err(error) => (0, error),
        Ok(Some(replicas @ ..0)) => (replicas, "should be a non-negative integer".to_owned()),
        Ok(Some(replicas)) if replicas > REPLICAS_MAX => (
            replicas,
            format!("should be less than or equal to {REPLICAS_MAX}"),
        ),
        Ok(_) => return None,
    };
    Some(StatusCause::invalid(FieldPath::new(path), replicas, &error))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{JsonObject, Scale};

    fn scale() -> Scale {
        Scale::parse(
            &json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready",
            "labelSelectorPath": ".status.phase"}),
        )
    }

    fn object(value: Value) -> JsonObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn scales_are_those_of_recorded_objects() {
        let mut widget =
            object(json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"size": 2}}));
        assert_eq!(
            Value::Object(scale().of(&widget).unwrap()),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"replicas": 2}, "status": {"replicas": 0}})
        );
        let wanted = object(json!({"metadata": {"resourceVersion": "4"}, "spec": {"replicas": 7}}));
        scale().apply(&mut widget, &wanted).unwrap();
        assert_eq!(widget["spec"], json!({"size": 7}));
        assert_eq!(widget["metadata"]["resourceVersion"], "4");
        let nothing = object(json!({"spec": {"size": 0}}));
        assert_eq!(scale().of(&nothing).unwrap()["spec"], json!({}));
        let empty = object(json!({"spec": {}}));
        let error = scale().of(&empty).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string()),
            (
                500,
                "Internal error occurred: the spec replicas field \".spec.size\" does not exist"
                    .to_owned()
            )
        );
        let error = scale()
            .apply(&mut empty.clone(), &object(json!({})))
            .unwrap_err();
        assert_eq!(
            (error.code(), error.to_string()),
            (
                400,
                "the spec replicas field \".spec.size\" cannot be empty".to_owned()
            )
        );
        scale()
            .apply(
                &mut object(json!({})),
                &object(json!({"spec": {"replicas": 1}})),
            )
            .unwrap();
    }

    #[test]
    fn replicas_must_be_numbers_of_32_bits() {
        for (spec, expected) in [
            (
                json!({"size": -1}),
                ".spec.size: Invalid value: -1: should be a non-negative integer",
            ),
            (
                json!({"size": 3_000_000_000_u32}),
                ".spec.size: Invalid value: 3000000000: should be less than or equal to 2147483647",
            ),
            (
                json!({"size": "x"}),
                ".spec.size: Invalid value: 0: .spec.size accessor error: x is of the type \
                string, expected int64",
            ),
        ] {
            let causes = scale().spec_errors(&object(json!({"spec": spec})));
            assert_eq!(causes.len(), 1);
            assert_eq!(causes[0].to_string(), expected);
        }
        let causes = scale().status_errors(&object(json!({"status": {"phase": 1}})));
        assert_eq!(
            causes[0].to_string(),
            ".status.phase: Invalid value: \"\": .status.phase accessor error: 1 is \
            of the type int64, expected string"
        );
    }
}
