//! Objects in other versions, for the comparison with the entries of these.

use parking_lot::Mutex;
use revstore_watch_cache::registry::JsonObject;

use crate::custom::conversion::Converter;

/// The conversions by a webhook that the entries of an object need.
///
/// What computes entries does not wait: it looks here for an object in another version, and where there is none yet, it
/// leaves a note and ends with an error. Then [`computing`](Self::computing) calls the webhook and repeats it. It needs a
/// conversion for each version of the definition and each stage of an object, so that this ends.
#[derive(Debug, Default)]
pub(crate) struct Conversions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<Known>,
    wanted: Option<(JsonObject, String)>,
}

/// An object, a version, and the object in this version.
#[derive(Debug)]
struct Known {
    object: JsonObject,
    version: String,
    converted: Result<JsonObject, String>,
}

impl Conversions {
    /// Computes something, again after each conversion of an object that it needed. What was converted before is forgotten:
    /// another attempt of a write is about other objects, and each of them can be large.
    pub(crate) async fn computing<T>(
        &self,
        converter: Option<&Converter>,
        mut compute: impl FnMut() -> T,
    ) -> T {
        *self.0.lock() = State::default();
        loop {
            let computed = compute();
            match converter {
                Some(converter) if self.make(converter).await => {}
                _ => return computed,
            }
        }
    }

    /// Returns an object in a version.
    ///
    /// # Errors
    /// The text of the error of the webhook, or any if it is not known yet.
    pub(crate) fn get(&self, object: &JsonObject, version: &str) -> Result<JsonObject, String> {
        let mut state = self.0.lock();
        let known = state.known.iter();
        let mut known = known.filter(|known| known.version == version && known.object == *object);
        if let Some(known) = known.next() {
            return known.converted.clone();
        }
        state.wanted = Some((object.clone(), version.to_owned()));
        Err("the object is not converted yet".to_owned())
    }

    /// Makes the conversion that was looked for in vain, and returns whether there was one.
    async fn make(&self, converter: &Converter) -> bool {
        let wanted = self.0.lock().wanted.take();
        let Some((object, version)) = wanted else {
            return false;
        };
        let result = converter.convert(object.clone(), &version).await;
        self.0.lock().known.push(Known {
            object,
            version,
            converted: result.map_err(|error| error.to_string()),
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn each_attempt_begins_without_the_conversions_of_the_last_one() {
        let conversions = Conversions::default();
        let object = JsonObject::from_iter([("spec".to_owned(), json!({"size": 1}))]);
        conversions.0.lock().known.push(Known {
            object: object.clone(),
            version: "v2".to_owned(),
            converted: Ok(object.clone()),
        });
        assert!(conversions.get(&object, "v2").is_ok());
        let computed = conversions.computing(None, || conversions.get(&object, "v2"));
        assert!(computed.await.is_err());
        assert!(conversions.0.lock().known.is_empty());
    }
}
