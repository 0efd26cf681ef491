//! Lists, which are written while the client reads them.

use http::StatusCode;
use revstore_kinds as kinds;
use revstore_watch_cache::api::{CollectionOptions, ObjectList};
use revstore_watch_cache::selector::{FieldRequirement, Selector};
use revstore_watch_cache::status::{Reason, Status};
use revstore_watch_cache::{RequestError, Revision, Scope};
use serde_json::{Value, json};

use crate::builtin;
use crate::catalog::{Origin, Resource, Stored, form_id};
use crate::components::Components;
use crate::http::{Accepted, Answer, Exchange, Form, Front, Media, Target, gzip};
use crate::stream::{Pieces, PrettyPieces, ProtobufPieces, YamlPieces};
use crate::verbs::collection_offer;
use crate::verbs::read::{FORMS, go_type, include};

/// Answers a list.
pub(crate) async fn list(
    front: &Front,
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(collection_offer(resource, &FORMS))?;
    let options = CollectionOptions::from_query(&exchange.query)?;
    let CollectionOptions::List(mut options) = options else {
        return Err(Status::bad_request("the request is a watch").into());
    };
    resolve_fields(resource, &mut options.selector)?;
    if let Some(revision) = exchange.past_revision() {
        options = options.as_of(revision)?;
    }
    if accepted.form == Form::Metadata {
        let message = format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            match resource.origin {
                Origin::Builtin => go_type(&resource.names.group, &resource.names.list_kind),
                Origin::Custom => resource.names.list_kind.clone(),
            }
        );
        return Err(Status::failure(Reason::NotAcceptable, message).into());
    }
    let list = if Components::are(resource) {
        options.check()?;
        component_statuses(front, &options.selector).await?
    } else {
        stored.cache.list(&scope(target), &options).await?
    };
    let mut list = resource.converted(list).await?;
    if accepted.form == Form::Whole && resource.origin == Origin::Custom {
        // Lists of custom resources always have a token.
        list.continue_token.get_or_insert_default();
    }
    let cache = stored.cache.clone();
    let id = form_id(
        resource.version,
        accepted.into(),
        include(exchange, accepted.form)?,
    );
    let objects = cache.object_count();
    let objects = match usize::try_from(options.limit) {
        Ok(limit) if limit > 0 && options.selector.is_empty() => limit.min(objects),
        _ => objects,
    };
    let json = move |list| -> Result<Pieces, RequestError> {
        let encoder = cache.encoder(id);
        let encoder =
            encoder.ok_or_else(|| RequestError::Internal("a form is missing".to_owned()))?;
        Ok(Box::new(encoder.list(list)))
    };
    let message = protobuf_type(resource, accepted);
    let media = match accepted.media {
        // A list that protobuf does not know is JSON.
        Media::Protobuf if message.is_none() => Media::Json,
        media => media,
    };
    let pieces: Pieces = match (media, message) {
        (Media::Protobuf, Some(message)) => Box::new(ProtobufPieces::new(list, message, json)),
        (Media::Yaml, _) => Box::new(YamlPieces::new(json(list)?)),
        _ if accepted.pretty => Box::new(PrettyPieces::new(json(list)?)),
        _ => json(list)?,
    };
    let accepts_gzip = gzip::is_accepted(&exchange.headers);
    let (body, is_compressed) = front.workers.body(pieces, objects, accepts_gzip).await?;
    let answer = Answer::new(StatusCode::OK, media.content_type(), body);
    Ok(if is_compressed {
        gzip::marked(answer)
    } else {
        answer
    })
}

/// Asks the components, and returns the selected statuses. Pages and versions have no sense for them, and are not looked at.
async fn component_statuses(
    front: &Front,
    selector: &Selector,
) -> Result<ObjectList, RequestError> {
    let mut statuses = front.components.statuses(&front.storage).await?;
    statuses.retain(|status| {
        let mut fields = selector.fields.requirements.iter();
        let has = |required: &FieldRequirement| {
            // The name and the namespace are the only fields.
            let value = match required.field.as_str() {
                "metadata.name" => status.name(),
                _ => "",
            };
            (value == required.value) == required.equal
        };
        selector.labels.matches(status) && fields.all(has)
    });
    Ok(ObjectList::from_objects(Revision(0), &statuses))
}

/// Returns the type of a list in protobuf, if there is one.
fn protobuf_type(resource: &Resource, accepted: Accepted) -> Option<&'static kinds::Type> {
    let names = &resource.names;
    match accepted.form {
        Form::Whole => kinds::kind(&names.group, &names.version, &names.list_kind),
        Form::MetadataList => kinds::type_named("meta.v1.PartialObjectMetadataList"),
        _ => None,
    }
}

/// Returns the scope of a path.
pub(crate) fn scope(target: &Target) -> Scope {
    if target.namespace.is_empty() {
        Scope::All
    } else {
        Scope::Namespace(target.namespace.as_str().into())
    }
}

/// Gives the fields of a selector the names that they have in stored objects. The cache checks those of custom resources.
// WC-354.
pub(crate) fn resolve_fields(
    resource: &Resource,
    selector: &mut Selector,
) -> Result<(), RequestError> {
    if resource.origin == Origin::Custom {
        return Ok(());
    }
    let names = &resource.names;
    for requirement in &mut selector.fields.requirements {
        let label = &requirement.field;
        let field = builtin::selected_field(&names.group, &names.version, &names.kind, label);
        field
            .map_err(RequestError::BadRequest)?
            .clone_into(&mut requirement.field);
    }
    Ok(())
}

/// Returns the metadata of a list.
pub(crate) fn list_metadata(resource: &Resource, list: &ObjectList) -> Value {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    match &list.continue_token {
        Some(token) => metadata["continue"] = token.as_str().into(),
        None if resource.origin == Origin::Custom => metadata["continue"] = "".into(),
        None => {}
    }
    if let Some(count) = list.remaining_item_count {
        metadata["remainingItemCount"] = count.into();
    }
    metadata
}
