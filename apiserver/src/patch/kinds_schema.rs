//! The types of built-in kinds as the schema of strategic merge patches.

use std::borrow::Cow;

use revstore_kinds::{Shape, Type};

use super::{ListStrategy, PatchField, PatchSchema, SchemaError};

impl PatchSchema for &'static Type {
    fn field(self, name: &str) -> Result<PatchField<Self>, SchemaError> {
        if !matches!(self.target().shape(), Shape::Struct(_)) {
            return Err(SchemaError::NotAStructure(
                go_kind(self.target()).to_owned(),
            ));
        }
        // Fields are found without regard to upper and lower case if there is no exact match, as in Go.
        let field = Type::field(self, name).or_else(|| {
            let mut fields = self.fields().iter();
            fields.find(|field| field.name().eq_ignore_ascii_case(name))
        });
        let field = field.ok_or_else(|| SchemaError::UnknownField {
            name: self.target().name().to_owned(),
            field: name.to_owned(),
        })?;
        Ok(PatchField {
            schema: field.ty(),
            strategy: if field.has_patch_strategy("merge") {
                ListStrategy::Merge
            } else if field.has_patch_strategy("replace") {
                ListStrategy::Replace
            } else {
                ListStrategy::Unset
            },
            merge_key: field.merge_key().map(Cow::Borrowed),
        })
    }

    fn items(self) -> Result<Self, SchemaError> {
        match self.target().shape() {
            Shape::List { item, .. } => Ok(item.get()),
            Shape::Bytes => Err(SchemaError::NotAList("slice of bytes".to_owned())),
            _ => Err(SchemaError::NotAList(go_kind(self.target()).to_owned())),
        }
    }

    fn name(self) -> Cow<'static, str> {
        go_kind(self.target()).into()
    }
}

/// Returns the name of the kind of a Go type.
fn go_kind(ty: &Type) -> &'static str {
    match ty.shape() {
        Shape::Pointer(_) => "ptr",
        Shape::List { .. } | Shape::Bytes => "slice",
        Shape::Map { .. } => "map",
        Shape::String => "string",
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float64 => "float64",
        _ => "struct",
    }
}

#[cfg(test)]
mod tests {
    use revstore_kinds::kind;
    use serde_json::{Value, json};

    use crate::patch::StrategicPatch;

    fn apply(group: &str, version: &str, name: &str, object: &Value, patch: &Value) -> Value {
        let schema = kind(group, version, name).unwrap();
        let (patch, _) = StrategicPatch::from_body(patch.to_string().as_bytes()).unwrap();
        patch.apply(object, schema).unwrap()
    }

    #[test]
    fn containers_ports_and_environments_are_merged_by_their_keys() {
        let container = json!({
            "name": "c", "image": "i:1", "args": ["a"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
        });
        let object = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let patch = json!({"spec": {"template": {"spec": {"containers": [{
            "name": "c", "image": "i:2", "args": ["b"],
            "env": [{"name": "B", "$patch": "delete"}, {"name": "C", "value": "3"}],
            "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 81}],
        }]}}}});
        let merged = apply("apps", "v1", "Deployment", &object, &patch);
        assert_eq!(
            merged["spec"]["template"]["spec"]["containers"],
            json!([{
                "name": "c", "image": "i:2", "args": ["b"],
                "env": [{"name": "C", "value": "3"}, {"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 81}],
            }])
        );
    }

    #[test]
    fn metadata_volumes_and_conditions_are_merged() {
        let object = json!({
            "metadata": {
                "finalizers": ["a"], "labels": {"x": "1"},
                "ownerReferences": [{"uid": "1", "name": "o"}],
            },
            "spec": {"volumes": [{"name": "v", "emptyDir": {}}]},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        });
        let patch = json!({
            "metadata": {
                "finalizers": ["b"], "labels": {"y": "2"},
                "ownerReferences": [{"uid": "1", "$patch": "delete"}, {"uid": "2", "name": "p"}],
            },
            "spec": {"volumes": [
                {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}},
            ]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(
            apply("", "v1", "Pod", &object, &patch),
            json!({
                "metadata": {
                    "finalizers": ["b", "a"], "labels": {"x": "1", "y": "2"},
                    "ownerReferences": [{"uid": "2", "name": "p"}],
                },
                "spec": {"volumes": [{"name": "v", "configMap": {"name": "m"}}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })
        );
    }
}
