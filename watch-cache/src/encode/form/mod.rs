//! Forms: what clients see of objects, and in which encoding.

mod json;
mod metadata;
mod set;
mod table;

use std::fmt;
use std::time::Duration;

use revstore_engine::Revision;

pub use self::json::JsonForm;
pub use self::metadata::{MetaVersion, MetadataForm};
pub(crate) use self::set::{FormSet, RegisteredForm};
pub use self::table::{IncludeObject, TableColumn, TableForm, TableRow};
use crate::api::event::EventType;
use crate::api::status::RequestError;
use crate::encode::object::Object;

/// The id of a form of a resource. Ids other than [`FormId::DEFAULT`] have the meaning that the user of
/// the cache gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormId(pub u16);

impl FormId {
    /// The form of objects unless another one is requested: that of
    /// [`Kind::form`](crate::encode::Kind::form), unless the resource is configured with another one.
    pub const DEFAULT: Self = Self(0);
}

/// A watch event without an object: a bookmark or an error.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ControlEvent<'a> {
    /// All events up to a revision were delivered.
    // WC-321, WC-325.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether the bookmark follows the last initial event.
        initial_events_end: bool,
    },
    /// The watch ends with this error.
    // WC-335.
    Error(&'a RequestError),
}

/// What a list says besides its items.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListHead {
    /// The revision of the listed state.
    pub revision: Revision,
    /// The token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if it is known.
    pub remaining_item_count: Option<u64>,
    /// The number of bytes of all items and separators, if the form
    /// [needs](Form::needs_items_bytes) it.
    pub items_bytes: Option<usize>,
}

/// A form of the objects of a resource: writes objects, lists and watch events for clients, such as all
/// of an object as JSON, its metadata, or a row of a table.
///
/// The cache shares what a form writes: an event is written once for each type, and sent to all watchers
/// with the form. So what is written must depend on the arguments only, or be limited by
/// [`shared_for`](Self::shared_for).
///
/// ```
/// use std::sync::Arc;
/// use revstore_watch_cache::encode::{ControlEvent, Form, FormId, ListHead};
/// use revstore_watch_cache::{EventType, JsonKind, Object, ResourceConfig};
///
/// /// Names, one on each line.
/// #[derive(Debug)]
/// struct Names;
///
/// impl Form for Names {
///     fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
///         out.extend_from_slice(object.name().as_bytes());
///     }
///     fn write_event(&self, event: EventType, object: &Object, _: bool, out: &mut Vec<u8>) {
///         out.extend_from_slice(format!("{} {}\n", event.as_str(), object.name()).as_bytes());
///     }
///     fn write_control_event(&self, event: ControlEvent<'_>, _: bool, out: &mut Vec<u8>) {
///         out.extend_from_slice(format!("{event:?}\n").as_bytes());
///     }
///     fn write_list_head(&self, _: &ListHead, _: &mut Vec<u8>) {}
///     fn write_list_tail(&self, _: &ListHead, _: &mut Vec<u8>) {}
///     fn separator(&self) -> &[u8] {
///         b"\n"
///     }
/// }
///
/// const NAMES: FormId = FormId(1);
/// let kind = JsonKind::new("v1", "Pod");
/// let pods = ResourceConfig::namespaced(kind, "pods", "/pods").form(NAMES, Arc::new(Names));
/// # let _ = pods;
/// ```
// WC-142.
pub trait Form: fmt::Debug + Send + Sync + 'static {
    /// Writes an object as the whole response to a request.
    fn write_object(&self, object: &Object, out: &mut Vec<u8>);

    /// Writes a complete watch event of an object. `is_first` tells whether it is the first event of its
    /// watch; it is always `false` unless [`differs_in_first_event`](Self::differs_in_first_event).
    fn write_event(&self, event: EventType, object: &Object, is_first: bool, out: &mut Vec<u8>);

    /// Writes a complete bookmark or error event.
    fn write_control_event(&self, event: ControlEvent<'_>, is_first: bool, out: &mut Vec<u8>);

    /// Writes what precedes the items of a list.
    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>);

    /// Writes an item of a list: by default as [`write_object`](Self::write_object).
    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        self.write_object(object, out);
    }

    /// Returns what separates the items of a list: by default a comma.
    fn separator(&self) -> &[u8] {
        b","
    }

    /// Writes what follows the items of a list.
    fn write_list_tail(&self, list: &ListHead, out: &mut Vec<u8>);

    /// Returns whether [`ListHead::items_bytes`] must be known. All items of a list are in memory at a
    /// time then.
    fn needs_items_bytes(&self) -> bool {
        false
    }

    /// Returns whether the first event of a watch differs from the same event in another place, as in a
    /// table, where it has the definitions of the columns.
    fn differs_in_first_event(&self) -> bool {
        false
    }

    /// Returns whether items are kept for further lists. Not useful if an item costs no more than a
    /// copy of the stored bytes.
    fn shares_items(&self) -> bool {
        true
    }

    /// Returns the time for which an encoding may be sent to further clients, if what is written
    /// depends on the time, such as the age of an object.
    fn shared_for(&self) -> Option<Duration> {
        None
    }
}
