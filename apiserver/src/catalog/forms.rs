//! The forms in which clients get the objects of a resource.

use std::sync::Arc;

use revstore_watch_cache::encode::{
    ControlEvent, Form as CacheForm, FormId, IncludeObject, JsonForm, ListHead, MetadataForm,
    TableForm, TableRow,
};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{EventType, JsonKind, Object, ObjectRef, ResourceCache};

use crate::catalog::protobuf_form::ProtobufForm;
use crate::catalog::{Names, Origin, Presentation, Rules};
use crate::http::Form;

/// The number of forms of one version of a resource.
const FORMS: u16 = 7;

/// Returns the id of a form of a version. Versions are numbered in the order in which they were added to a cache.
pub(crate) fn form_id(version: u16, form: Form, include: IncludeObject) -> FormId {
    let number = match (form, include) {
        (Form::Whole | Form::AggregatedDiscovery, _) => 0,
        (Form::Metadata | Form::MetadataList, _) => 1,
        (Form::Table, IncludeObject::Metadata) => 2,
        (Form::Table, IncludeObject::None) => 3,
        (Form::Table, IncludeObject::Object) => 4,
    };
    FormId(version * FORMS + number)
}

/// Returns the id of a form of a version in protobuf, or `None` if there is no such form.
pub(crate) fn protobuf_form_id(version: u16, form: Form) -> Option<FormId> {
    let number = match form {
        Form::Whole => 5,
        Form::Metadata => 6,
        _ => return None,
    };
    Some(FormId(version * FORMS + number))
}

/// Gives a cache the forms of a version.
pub(crate) fn add(
    cache: &ResourceCache,
    version: u16,
    names: &Names,
    origin: Origin,
    rules: &Arc<dyn Rules>,
    view: Option<&Arc<dyn Presentation>>,
) {
    let json = JsonForm::new(names.api_version(), &names.kind).list_kind(&names.list_kind);
    let whole: Arc<dyn CacheForm> = match (origin, view) {
        (Origin::Builtin, None) => Arc::new(json.untyped_items()),
        (_, Some(view)) => Arc::new(ViewForm {
            shown: if origin == Origin::Builtin {
                json.untyped_items()
            } else {
                json
            },
            kind: JsonKind::new(names.api_version(), &*names.kind),
            view: view.clone(),
        }),
        (Origin::Custom, None) => Arc::new(json),
    };
    let set = |form, include, made| cache.set_form(form_id(version, form, include), made);
    let metadata = MetadataForm::of(whole.clone());
    let metadata: Arc<dyn CacheForm> = Arc::new(metadata);
    set(Form::Metadata, IncludeObject::Metadata, metadata.clone());
    if origin == Origin::Builtin {
        for (form, json, api_version, kind) in [
            (
                Form::Whole,
                &whole,
                names.api_version(),
                names.kind.as_str(),
            ),
            (
                Form::Metadata,
                &metadata,
                "meta.k8s.io/v1".to_owned(),
                "PartialObjectMetadata",
            ),
        ] {
            let protobuf = ProtobufForm {
                json: json.clone(),
                api_version,
                kind: kind.to_owned(),
            };
            if let Some(id) = protobuf_form_id(version, form) {
                cache.set_form(id, Arc::new(protobuf));
            }
        }
    }
    let columns = rules.columns();
    for include in [
        IncludeObject::Metadata,
        IncludeObject::None,
        IncludeObject::Object,
    ] {
        let (rules, view) = (rules.clone(), view.cloned());
        let row = move |object: &Object| {
            let decoded: JsonObject = serde_json::from_slice(object.value()).unwrap_or_default();
            let decoded = match &view {
                Some(view) => view.to_shown(decoded),
                None => decoded,
            };
            TableRow::new(rules.cells(&decoded)).conditions(rules.row_conditions(&decoded))
        };
        let table = TableForm::of_rows(whole.clone(), &columns, row).include(include);
        set(Form::Table, include, Arc::new(table));
    }
    set(Form::Whole, IncludeObject::Metadata, whole);
}

/// Whole objects of a version that are stored in another one with other fields.
#[derive(Debug)]
struct ViewForm {
    shown: JsonForm,
    kind: JsonKind,
    view: Arc<dyn Presentation>,
}

impl ViewForm {
    fn to_shown(&self, object: &Object) -> Object {
        let decoded: JsonObject = serde_json::from_slice(object.value()).unwrap_or_default();
        let value = serde_json::to_vec(&self.view.to_shown(decoded)).unwrap_or_default();
        let namespace = object.namespace();
        let reference = ObjectRef {
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: object.name().to_owned(),
        };
        Object::from_parts(&reference, object.revision(), value, &self.kind)
    }
}

impl CacheForm for ViewForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        self.shown.write_object(&self.to_shown(object), out);
    }

    fn write_event(&self, event: EventType, object: &Object, is_first: bool, out: &mut Vec<u8>) {
        self.shown
            .write_event(event, &self.to_shown(object), is_first, out);
    }

    fn write_control_event(&self, event: ControlEvent<'_>, is_first: bool, out: &mut Vec<u8>) {
        self.shown.write_control_event(event, is_first, out);
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.shown.write_list_head(list, out);
    }

    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        self.shown.write_item(&self.to_shown(object), out);
    }

    fn write_list_tail(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.shown.write_list_tail(list, out);
    }
}
