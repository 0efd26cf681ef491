//! The forms in which clients get the objects of a resource.

use std::sync::Arc;

use revstore_watch_cache::encode::{
    ControlEvent, Form as CacheForm, FormId, IncludeObject, JsonForm, ListHead, MetaVersion,
    MetadataForm, TableForm, TableRow,
};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{EventType, JsonKind, Object, ObjectRef, ResourceCache};

use crate::catalog::protobuf_form::ProtobufForm;
use crate::catalog::{Names, Origin, Presentation, Rules};
use crate::http::{Accepted, Form};

/// The number of forms of one version of a resource.
const FORMS: u16 = 12;

/// Returns the id of a form of a version. Versions are numbered in the order in which they were added to a cache.
pub(crate) fn form_id(version: u16, form: MetaForm, include: IncludeObject) -> FormId {
    let number = match (form.form, include) {
        (Form::Whole | Form::AggregatedDiscovery, _) => 0,
        (Form::Metadata | Form::MetadataList, _) => form.number(1, 7),
        (Form::Table, IncludeObject::Metadata) => form.number(2, 8),
        (Form::Table, IncludeObject::None) => form.number(3, 9),
        (Form::Table, IncludeObject::Object) => form.number(4, 10),
    };
    FormId(version * FORMS + number)
}

/// Returns the id of a form of a version in protobuf, or `None` if there is no such form.
pub(crate) fn protobuf_form_id(version: u16, form: MetaForm) -> Option<FormId> {
    let number = match form.form {
        Form::Whole => 5,
        Form::Metadata => form.number(6, 11),
        _ => return None,
    };
    Some(FormId(version * FORMS + number))
}

/// A form, in a version of metadata and tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaForm {
    form: Form,
    version: MetaVersion,
}

impl MetaForm {
    fn number(self, stable: u16, beta: u16) -> u16 {
        match self.version {
            MetaVersion::V1 => stable,
            MetaVersion::V1Beta1 => beta,
        }
    }
}

impl From<Accepted> for MetaForm {
    fn from(accepted: Accepted) -> Self {
        let (form, version) = (accepted.form, accepted.meta_version);
        Self { form, version }
    }
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
    // As from Go's types, the JSON of built-in kinds begins with the kind, and that of custom resources, which are stored
    // so, with the API version.
    let json = JsonForm::new(names.api_version(), &names.kind).list_kind(&names.list_kind);
    let whole: Arc<dyn CacheForm> = match (origin, view) {
        (Origin::Builtin, None) => Arc::new(json.typed().untyped_items()),
        (_, Some(view)) => Arc::new(ViewForm {
            shown: if origin == Origin::Builtin {
                json.typed().untyped_items()
            } else {
                json
            },
            kind: JsonKind::new(names.api_version(), &*names.kind),
            view: view.clone(),
        }),
        (Origin::Custom, None) => Arc::new(json),
    };
    let set_protobuf = |form, json: &Arc<dyn CacheForm>, api_version: &str, kind: &str| {
        let protobuf = ProtobufForm {
            json: json.clone(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        if let Some(id) = protobuf_form_id(version, form) {
            cache.set_form(id, Arc::new(protobuf));
        }
    };
    let is_builtin = origin == Origin::Builtin;
    let columns = rules.columns();
    let (rules, view) = (rules.clone(), view.cloned());
    let row = move |object: &Object| {
        let decoded: JsonObject = serde_json::from_slice(object.value()).unwrap_or_default();
        let decoded = match &view {
            Some(view) => view.to_shown(decoded),
            None => decoded,
        };
        TableRow::new(rules.cells(&decoded)).conditions(rules.row_conditions(&decoded))
    };
    let table = TableForm::of_rows(whole.clone(), &columns, row);
    for meta_version in [MetaVersion::V1, MetaVersion::V1Beta1] {
        let of = |form| MetaForm {
            form,
            version: meta_version,
        };
        let metadata = MetadataForm::of(whole.clone()).version(meta_version);
        let metadata: Arc<dyn CacheForm> = Arc::new(metadata);
        if is_builtin {
            let (api_version, kind) = (meta_version.api_version(), "PartialObjectMetadata");
            set_protobuf(of(Form::Metadata), &metadata, api_version, kind);
        }
        let id = form_id(version, of(Form::Metadata), IncludeObject::Metadata);
        cache.set_form(id, metadata);
        for include in [
            IncludeObject::Metadata,
            IncludeObject::None,
            IncludeObject::Object,
        ] {
            let table = table.clone().version(meta_version).include(include);
            let id = form_id(version, of(Form::Table), include);
            cache.set_form(id, Arc::new(table));
        }
    }
    let form = Accepted::default().into();
    if is_builtin {
        set_protobuf(form, &whole, &names.api_version(), &names.kind);
    }
    cache.set_form(form_id(version, form, IncludeObject::Metadata), whole);
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
