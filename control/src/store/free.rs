//! Stores that nobody uses any more.

/// Frees a store in a thread of its own, because that takes time. Without a thread, it is freed here.
pub fn free<T: Send + 'static>(store: T) {
    let _ = std::thread::Builder::new()
        .name("revstore-free".to_owned())
        .spawn(move || drop(store));
}
