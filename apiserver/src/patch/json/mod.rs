//! JSON patches: RFC 6902, with the deviations of the library that kube-apiserver uses.

mod pointer;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::pointer::Place;
use super::{MAX_JSON_PATCH_OPERATIONS, PatchError};
use crate::decode::{MAX_DEPTH, from_json, json_type};

/// The largest size of all values that the `copy` operations of a patch copy, in bytes of JSON. A patch
/// that copies more fails with 422.
pub const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;

/// The largest number of steps of a patch: items of lists that are moved, and values whose depth is
/// measured, because they get into another place. A patch with more fails with 422. (Fewer in unit tests,
/// which are slow.)
const MAX_STEPS: usize = if cfg!(test) { 1_000_000 } else { 50_000_000 };

/// A JSON patch.
///
/// Deviations from RFC 6902, as in kube-apiserver: `replace` of a missing member adds it, `test` with `null`
/// passes for a missing member, `copy` of a missing member adds `null`, a missing `value` is `null`, indices
/// may be negative and count from the end, and the text before the first slash of a path is ignored.
/// Only `test` and `replace` accept the empty path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch(Vec<Operation>);

/// One operation. A field of the wrong type is a missing one.
#[derive(Clone, Debug, PartialEq)]
struct Operation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl JsonPatch {
    /// Reads a patch. Returns it with the errors of strict decoding. Without `is_strict`, fields of an
    /// operation may have a wrong type, and the operation fails when it is applied.
    ///
    /// # Errors
    /// [`PatchError`] if the patch is malformed or has too many operations.
    pub fn from_body(body: &[u8], is_strict: bool) -> Result<(Self, Vec<String>), PatchError> {
        let malformed = |text: String| {
            if is_strict {
                PatchError::Malformed(text)
            } else {
                PatchError::Undecodable(text)
            }
        };
        let decoded = from_json(body).map_err(|error| malformed(error.to_string()))?;
        let mut strict: Vec<_> = decoded
            .strict
            .iter()
            .map(|error| format!("json patch {error}"))
            .collect();
        let (list, item) = if is_strict {
            ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
        } else {
            ("jsonpatch.Patch", "jsonpatch.Operation")
        };
        let mismatch = |value: &Value, expected: &str| {
            let found = json_type(value);
            malformed(format!(
                "json: cannot unmarshal {found} into Go value of type {expected}"
            ))
        };
        let items = match decoded.value {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => return Err(mismatch(&other, list)),
        };
        let mut operations = Vec::with_capacity(items.len());
        for (index, value) in items.into_iter().enumerate() {
            let fields = match value {
                Value::Object(fields) => fields,
                Value::Null => Map::new(),
                other => return Err(mismatch(&other, item)),
            };
            if is_strict {
                check_fields(&fields, index, &mut strict)?;
            }
            operations.push(Operation::new(fields));
        }
        if operations.len() > MAX_JSON_PATCH_OPERATIONS {
            return Err(PatchError::TooManyOperations(operations.len()));
        }
        Ok((Self(operations), strict))
    }

    /// Returns whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the patch to an object.
    ///
    /// # Errors
    /// [`PatchError`] if an operation fails or a limit is exceeded.
    ///
    /// ```
    /// use revstore_apiserver::patch::JsonPatch;
    /// use serde_json::json;
    /// let body = br#"[{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]"#;
    /// let (patch, _) = JsonPatch::from_body(body, true)?;
    /// assert_eq!(patch.apply(&json!({"a": 1, "b": 2}))?, json!({"b": 2}));
    /// assert_eq!(patch.apply(&json!({"a": 2})).unwrap_err().status().code, 422);
    /// # Ok::<(), revstore_apiserver::patch::PatchError>(())
    /// ```
    pub fn apply(&self, object: &Value) -> Result<Value, PatchError> {
        let mut target = Target {
            root: object.clone(),
            copied: 0,
            steps: 0,
        };
        for operation in &self.0 {
            target.apply(operation)?;
        }
        Ok(target.root)
    }
}

/// The error of a body that must be an object.
pub(super) fn not_a_map(value: &Value) -> PatchError {
    let found = json_type(value);
    PatchError::Malformed(format!(
        "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    ))
}

/// Checks the names and types of the fields of an operation.
fn check_fields(
    fields: &Map<String, Value>,
    index: usize,
    strict: &mut Vec<String>,
) -> Result<(), PatchError> {
    for (name, value) in fields {
        match name.as_str() {
            "op" | "path" | "from" if !value.is_string() && !value.is_null() => {
                let found = json_type(value);
                return Err(PatchError::Malformed(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of \
                     type string"
                )));
            }
            "op" | "path" | "from" | "value" => {}
            unknown if strict.len() < crate::decode::MAX_STRICT_ERRORS => {
                let path = format!("[{index}].{unknown}");
                strict.push(format!("json patch unknown field {path:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Operation {
    fn new(mut fields: Map<String, Value>) -> Self {
        let mut text = |name| match fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        Self {
            op: text("op").unwrap_or_else(|| "unknown".to_owned()),
            path: text("path"),
            from: text("from"),
            value: fields.remove("value").unwrap_or_default(),
        }
    }
}

/// The object that a patch is applied to.
struct Target {
    root: Value,
    /// The size of all copied values.
    copied: usize,
    /// The number of steps.
    steps: usize,
}

impl Target {
    fn apply(&mut self, operation: &Operation) -> Result<(), PatchError> {
        let op = operation.op.as_str();
        let path = || {
            let path = operation.path.as_deref();
            path.ok_or_else(|| failed(format!("{op} operation without a path")))
        };
        match op {
            "add" => self.add(path()?, operation.value.clone()),
            "remove" => self.remove(path()?).map(drop),
            "replace" => self.replace(path()?, &operation.value),
            "test" => self.test(path()?, &operation.value),
            "move" => {
                let value = self.remove(operation.from()?)?;
                self.add(path()?, value)
            }
            "copy" => {
                let value = self.get(operation.from()?)?.cloned().unwrap_or_default();
                self.copied = self.copied.saturating_add(json_bytes(&value));
                if self.copied > MAX_COPY_BYTES {
                    return Err(failed(format!(
                        "the copy operations copy more than {MAX_COPY_BYTES} bytes"
                    )));
                }
                self.add(path()?, value)
            }
            other => Err(failed(format!("unexpected operation {other}"))),
        }
    }

    fn place(&mut self, path: &str) -> Result<Place<'_>, PatchError> {
        pointer::find(&mut self.root, path).ok_or_else(|| missing(path))
    }

    /// Returns the value at a path; a missing member is `None`.
    fn get(&mut self, path: &str) -> Result<Option<&Value>, PatchError> {
        let Place { container, key, .. } = self.place(path)?;
        match container {
            Value::Array(items) => {
                let index = pointer::index(&key, items.len());
                let item = index.and_then(|index| items.get(index));
                item.map(Some).ok_or_else(|| missing(path))
            }
            object => Ok(object.get(&key)),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        let depth = self.measure(&value)?;
        let place = self.place(path)?;
        if place.depth + depth > MAX_DEPTH {
            return Err(PatchError::TooDeep);
        }
        match place.container {
            Value::Array(items) => {
                let length = items.len();
                let index = if place.key == "-" {
                    length
                } else {
                    // Negative indices count from behind the new item.
                    let index = pointer::index(&place.key, length + 1);
                    let index = index.filter(|index| *index <= length);
                    index.ok_or_else(|| missing(path))?
                };
                items.insert(index, value);
                self.step(length - index)
            }
            Value::Object(object) => {
                object.insert(place.key, value);
                Ok(())
            }
            _ => Err(missing(path)),
        }
    }

    fn remove(&mut self, path: &str) -> Result<Value, PatchError> {
        let Place { container, key, .. } = self.place(path)?;
        let (value, moved) = match container {
            Value::Array(items) => {
                let length = items.len();
                let index = pointer::index(&key, length).filter(|index| *index < length);
                let index = index.ok_or_else(|| missing(path))?;
                (items.remove(index), length - index)
            }
            object => {
                let object = object.as_object_mut();
                let value = object.and_then(|object| object.remove(&key));
                (value.ok_or_else(|| missing(path))?, 0)
            }
        };
        self.step(moved)?;
        Ok(value)
    }

    fn replace(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        let depth = self.measure(value)?;
        if path.is_empty() {
            if depth == 0 {
                return Err(failed(
                    "the new value must be an object or a list".to_owned(),
                ));
            }
            self.root = value.clone();
            return Ok(());
        }
        let place = self.place(path)?;
        if place.depth + depth > MAX_DEPTH {
            return Err(PatchError::TooDeep);
        }
        match place.container {
            Value::Array(items) => {
                let index = pointer::index(&place.key, items.len());
                let item = index.and_then(|index| items.get_mut(index));
                *item.ok_or_else(|| missing(path))? = value.clone();
            }
            Value::Object(object) => {
                object.insert(place.key, value.clone());
            }
            _ => return Err(missing(path)),
        }
        Ok(())
    }

    fn test(&mut self, path: &str, expected: &Value) -> Result<(), PatchError> {
        let found = if path.is_empty() {
            Some(&self.root)
        } else {
            self.get(path)?
        };
        if found.unwrap_or(&Value::Null) == expected {
            Ok(())
        } else {
            Err(failed(format!("testing value {path} failed")))
        }
    }

    /// Returns the depth of a value, and counts the values in it.
    fn measure(&mut self, value: &Value) -> Result<usize, PatchError> {
        fn walk(value: &Value, steps: &mut usize) -> usize {
            *steps += 1;
            match value {
                Value::Array(items) => {
                    let depths = items.iter().map(|item| walk(item, steps));
                    1 + depths.max().unwrap_or_default()
                }
                Value::Object(object) => {
                    let depths = object.values().map(|value| walk(value, steps));
                    1 + depths.max().unwrap_or_default()
                }
                _ => 0,
            }
        }
        let depth = walk(value, &mut self.steps);
        self.step(0)?;
        Ok(depth)
    }

    fn step(&mut self, steps: usize) -> Result<(), PatchError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(failed(format!(
                "the patch takes more than {MAX_STEPS} steps"
            )));
        }
        Ok(())
    }
}

impl Operation {
    fn from(&self) -> Result<&str, PatchError> {
        let from = self.from.as_deref();
        from.ok_or_else(|| failed(format!("{} operation without a source", self.op)))
    }
}

fn failed(text: String) -> PatchError {
    PatchError::Failed(text)
}

fn missing(path: &str) -> PatchError {
    failed(format!("there is no value at {path}"))
}

/// Returns the length of a value as JSON, but for escape sequences and digits of numbers.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            let members = object
                .iter()
                .map(|(key, value)| key.len() + 4 + json_bytes(value));
            2 + members.sum::<usize>()
        }
    }
}
