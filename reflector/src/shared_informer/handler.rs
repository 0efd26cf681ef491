//! Handlers: what is called for the changes of an informer's store.
//!
//! [`EventHandler`] corresponds to `ResourceEventHandler` of client-go, and [`Handlers`] to its
//! `ResourceEventHandlerFuncs`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use revstore_watch_cache::Object;

use super::delta_queue::FinalState;
use super::informer::InformerHandle;
use super::subscription::{Delivery, Notification, NotificationQueue};

/// A handler of the notifications of a [`Subscription`](crate::Subscription). The default methods do nothing.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use revstore_reflector::{EventHandler, FinalState, InformerHandle};
/// use revstore_watch_cache::Object;
///
/// /// Sends the keys of changed objects to a reconcile loop.
/// struct ChangedKeys(Sender<String>);
///
/// impl EventHandler for ChangedKeys {
///     fn on_add(&mut self, object: &Object, _initial: bool) {
///         let _ = self.0.send(object.store_key());
///     }
///     fn on_update(&mut self, _old: &Object, new: &Object) {
///         let _ = self.0.send(new.store_key());
///     }
///     fn on_delete(&mut self, state: &FinalState) {
///         let _ = self.0.send(state.object().store_key());
///     }
/// }
///
/// fn reconcile(informer: &InformerHandle) {
///     let (sender, keys) = channel();
///     let subscription = informer.subscribe();
///     std::thread::spawn(move || pollster::block_on(subscription.run(ChangedKeys(sender))));
///     // The loop ends when the informer ends.
///     for key in keys {
///         let _ = informer.store().get(&key);
///     }
/// }
/// ```
pub trait EventHandler: Send {
    /// Called for a new object; `initial` as in [`Notification::Added`].
    fn on_add(&mut self, object: &Object, initial: bool) {
        let _ = (object, initial);
    }
    /// Called for a changed object.
    fn on_update(&mut self, old: &Object, new: &Object) {
        let _ = (old, new);
    }
    /// Called for a deleted object. If the deletion was missed, only the last received content is
    /// known ([`FinalState::Unknown`]).
    fn on_delete(&mut self, state: &FinalState) {
        let _ = state;
    }
}

/// An [`EventHandler`] of closures. Those that are not set do nothing.
///
/// ```
/// use std::sync::mpsc::channel;
/// use revstore_reflector::{Handlers, InformerHandle};
///
/// fn print_keys(informer: &InformerHandle) {
///     let (sender, keys) = channel();
///     let deleted = sender.clone();
///     let registration = informer.add_handler(
///         Handlers::new()
///             .on_add(move |object, _initial| drop(sender.send(object.store_key())))
///             .on_delete(move |state| drop(deleted.send(state.object().store_key()))),
///     );
///     for key in keys {
///         // Ends when the informer ends.
///         drop(key);
///     }
///     drop(registration);
/// }
/// ```
#[derive(Default)]
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct Handlers {
    add: Option<AddFn>,
    update: Option<UpdateFn>,
    delete: Option<DeleteFn>,
}

type AddFn = Box<dyn FnMut(&Object, bool) + Send>;
type UpdateFn = Box<dyn FnMut(&Object, &Object) + Send>;
type DeleteFn = Box<dyn FnMut(&FinalState) + Send>;

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").finish_non_exhaustive()
    }
}

impl Handlers {
    /// Returns a handler that does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the closure for a new object; its second argument is as in [`Notification::Added`].
    pub fn on_add(self, call: impl FnMut(&Object, bool) + Send + 'static) -> Self {
        Self {
            add: Some(Box::new(call)),
            ..self
        }
    }

    /// Sets the closure for a changed object, with the previous and the current object.
    pub fn on_update(self, call: impl FnMut(&Object, &Object) + Send + 'static) -> Self {
        Self {
            update: Some(Box::new(call)),
            ..self
        }
    }

    /// Sets the closure for a deleted object.
    pub fn on_delete(self, call: impl FnMut(&FinalState) + Send + 'static) -> Self {
        Self {
            delete: Some(Box::new(call)),
            ..self
        }
    }

    /// Returns a handler that calls `call` with the key of each object that was added, changed or
    /// deleted, for example to add it to a [`WorkQueue`](crate::WorkQueue).
    pub fn keys(call: impl Fn(String) + Send + Sync + 'static) -> Self {
        let call = Arc::new(call);
        let (update, delete) = (call.clone(), call.clone());
        Self::new()
            .on_add(move |object, _| call(object.store_key()))
            .on_update(move |_, new| update(new.store_key()))
            .on_delete(move |state| delete(state.object().store_key()))
    }
}

impl EventHandler for Handlers {
    fn on_add(&mut self, object: &Object, initial: bool) {
        if let Some(call) = &mut self.add {
            call(object, initial);
        }
    }
    fn on_update(&mut self, old: &Object, new: &Object) {
        if let Some(call) = &mut self.update {
            call(old, new);
        }
    }
    fn on_delete(&mut self, state: &FinalState) {
        if let Some(call) = &mut self.delete {
            call(state);
        }
    }
}

/// A handler that runs on a thread of its own, created by
/// [`InformerHandle::add_handler`]. Dropping it removes the handler: it receives no further
/// notification, and a call that runs continues to its end.
#[must_use = "dropping it removes the handler"]
pub struct HandlerRegistration {
    queue: Arc<NotificationQueue>,
    panics: Arc<AtomicU64>,
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration")
            .field("pending", &self.pending())
            .field("panics", &self.panics())
            .finish_non_exhaustive()
    }
}

impl HandlerRegistration {
    /// Returns whether the calls for all initial objects have returned.
    // WC-514.
    pub fn has_synced(&self) -> bool {
        self.queue.has_synced()
    }

    /// Returns the number of notifications that the handler was not called for yet.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of notifications that were merged into another one because the handler is
    /// too slow, as
    /// [`Subscription::merged`](crate::Subscription::merged).
    pub fn merged(&self) -> u64 {
        self.queue.merged()
    }

    /// Returns the number of calls that have panicked.
    pub fn panics(&self) -> u64 {
        // Relaxed: a count that orders nothing.
        self.panics.load(Ordering::Relaxed)
    }
}

impl Drop for HandlerRegistration {
    fn drop(&mut self) {
        self.queue.discard();
    }
}

/// Calls the method of a handler for a notification.
pub(crate) fn call(handler: &mut impl EventHandler, notification: &Notification) {
    match notification {
        Notification::Added { object, initial } => handler.on_add(object, *initial),
        Notification::Updated { old, new } => handler.on_update(old, new),
        Notification::Deleted(state) => handler.on_delete(state),
    }
}

impl InformerHandle {
    /// Adds a handler, which is called for the existing objects and then for each change, in order, on
    /// a thread of its own, until the informer ends or the registration is dropped.
    ///
    /// - A slow handler delays neither the informer nor other handlers. Its notifications wait in a
    ///   queue, as those of a subscription in order ([`Delivery::InOrder`]).
    /// - A panic ends the call, and the handler is called for the next notification. The panic hook
    ///   reports it, and [`HandlerRegistration::panics`] counts it. Other handlers and the informer are
    ///   not affected.
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    // WC-515, WC-516.
    pub fn add_handler(&self, handler: impl EventHandler + 'static) -> HandlerRegistration {
        self.add_handler_with(Delivery::InOrder, handler)
    }

    /// Adds a handler as [`add_handler`](Self::add_handler) does, with another [`Delivery`].
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    pub fn add_handler_with(
        &self,
        delivery: Delivery,
        mut handler: impl EventHandler + 'static,
    ) -> HandlerRegistration {
        let mut subscription = self.subscribe_with(delivery);
        subscription.queue.expect_confirmations();
        let registration = HandlerRegistration {
            queue: subscription.queue.clone(),
            panics: Arc::default(),
        };
        let panics = registration.panics.clone();
        let run = async move {
            while let Some(notification) = subscription.next().await {
                let called = AssertUnwindSafe(|| call(&mut handler, &notification));
                if catch_unwind(called).is_err() {
                    // Relaxed: as in `panics`.
                    panics.fetch_add(1, Ordering::Relaxed);
                }
                if notification.is_initial() {
                    subscription.queue.confirm_initial();
                }
            }
        };
        std::thread::Builder::new()
            .name("revstore-handler".into())
            .spawn(move || pollster::block_on(run))
            .expect("the operating system creates a thread");
        registration
    }
}
