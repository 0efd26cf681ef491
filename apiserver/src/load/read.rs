//! The files of a directory, and the objects in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::OFlags;
use serde_json::Value;

use super::LoadError;
use super::document::{Document, split};
use crate::custom::definition;
use crate::decode::{self, Format};

/// The maximum number of files.
const FILES_MAX: usize = 10_000;
/// The maximum number of objects in all files.
const OBJECTS_MAX: usize = 100_000;
/// The maximum size of all files.
const BYTES_MAX: u64 = 256 << 20;
/// The maximum size of one document, such as a list of objects.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The objects of a directory, in the order in which they are created.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    pub(super) objects: Vec<Manifest>,
}

/// When an object is created, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The definition of custom resources. All are established before the next stage.
    Definition,
    Namespace,
    Other,
}

/// An object, with the place from which it comes.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) stage: Stage,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) text: Bytes,
    pub(super) format: Format,
    place: Place,
}

/// A document in a file.
#[derive(Clone, Debug)]
struct Place {
    path: Arc<Path>,
    number: usize,
    line: usize,
}

impl Place {
    fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Document {
            path: self.path.to_path_buf(),
            number: self.number,
            line: self.line,
            reason: reason.into(),
        }
    }
}

impl Manifest {
    /// Returns the error of this object.
    pub(super) fn error(&self, reason: impl Into<String>) -> LoadError {
        self.place.error(reason)
    }
}

impl Manifests {
    /// Reads the files `*.yaml`, `*.yml` and `*.json` of a directory in the order of their names. Directories in it,
    /// and names that begin with a dot, are left out.
    ///
    /// # Errors
    /// A file cannot be read, is malformed, has an object without a kind or an API version; or there are too many.
    pub(crate) fn read(directory: &Path) -> Result<Self, LoadError> {
        let mut manifests = Self::default();
        let mut bytes_left = BYTES_MAX;
        for (path, format) in files(directory)? {
            let text = read_file(&path, bytes_left)?;
            let Some(text) = text else {
                let reason = format!("all files together have more than {} MiB", BYTES_MAX >> 20);
                return Err(LoadError::TooMuch { path, reason });
            };
            bytes_left -= text.len() as u64;
            let path: Arc<Path> = path.into();
            for document in split(&Bytes::from(text), format) {
                manifests.add_document(&path, &document)?;
            }
        }
        // Stable: objects of a stage stay in the order of the files.
        manifests.objects.sort_by_key(|object| object.stage);
        Ok(manifests)
    }

    fn add_document(&mut self, path: &Arc<Path>, document: &Document) -> Result<(), LoadError> {
        let place = Place {
            path: path.clone(),
            number: document.number,
            line: document.line,
        };
        if document.text.len() > DOCUMENT_BYTES_MAX {
            let limit = DOCUMENT_BYTES_MAX >> 20;
            return Err(place.error(format!("the document has more than {limit} MiB")));
        }
        let decoded = decode::decode(&document.text, document.format);
        let decoded = decoded.map_err(|error| place.error(error.to_string()))?;
        if let Some(error) = decoded.strict.first() {
            return Err(place.error(error.clone()));
        }
        match decoded.value {
            Value::Null => Ok(()),
            value if is_list(&value) => {
                let items = value.get("items").and_then(Value::as_array);
                for item in items.into_iter().flatten() {
                    let text = Bytes::from(item.to_string());
                    self.add(item, text, Format::Json, &place)?;
                }
                Ok(())
            }
            value => self.add(&value, document.text.clone(), document.format, &place),
        }
    }

    fn add(
        &mut self,
        object: &Value,
        text: Bytes,
        format: Format,
        place: &Place,
    ) -> Result<(), LoadError> {
        if self.objects.len() >= OBJECTS_MAX {
            return Err(place.error(format!("there are more than {OBJECTS_MAX} objects")));
        }
        let field = |object: &Value, name: &str| match object.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(place.error(format!("{name} is not a text"))),
        };
        if !object.is_object() {
            return Err(place.error("it is not an object"));
        }
        let (api_version, kind) = (field(object, "apiVersion")?, field(object, "kind")?);
        for (name, value) in [("apiVersion", &api_version), ("kind", &kind)] {
            if value.is_empty() {
                return Err(place.error(format!("{name} is missing")));
            }
        }
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let namespace = field(metadata, "namespace")?;
        // It becomes a part of a path.
        if namespace.contains('/') {
            return Err(place.error(format!("metadata.namespace: Invalid value: {namespace:?}")));
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let stage = match (group, kind.as_str()) {
            (definition::GROUP, "CustomResourceDefinition") => Stage::Definition,
            ("", "Namespace") => Stage::Namespace,
            _ => Stage::Other,
        };
        self.objects.push(Manifest {
            stage,
            namespace,
            name: field(metadata, "name")?,
            api_version,
            kind,
            text,
            format,
            place: place.clone(),
        });
        Ok(())
    }
}

/// Returns whether a value is a list of objects, such as those that `kubectl get` prints.
fn is_list(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("List"))
        && value.get("items").is_some_and(Value::is_array)
}

/// Returns the files of a directory in the order of their names.
fn files(directory: &Path) -> Result<Vec<(PathBuf, Format)>, LoadError> {
    let failed = |source| LoadError::Read {
        path: directory.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let path = entry.path();
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Format::Yaml,
            Some("json") => Format::Json,
            _ => continue,
        };
        // A symbolic link counts as what it leads to.
        if name.as_encoded_bytes().starts_with(b".") || path.is_dir() {
            continue;
        }
        if files.len() >= FILES_MAX {
            return Err(LoadError::TooMuch {
                path: directory.to_owned(),
                reason: format!("there are more than {FILES_MAX} files"),
            });
        }
        files.push((path, format));
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

/// Reads a file, or returns `None` if it is larger than `bytes_max`.
fn read_file(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, LoadError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        // Does not wait for the writer of a named pipe.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file: File = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if metadata.len() > bytes_max {
            return Ok(None);
        }
        let mut text = Vec::new();
        // The file may grow meanwhile.
        file.take(bytes_max.saturating_add(1))
            .read_to_end(&mut text)?;
        Ok((text.len() as u64 <= bytes_max).then_some(text))
    };
    read().map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })
}
