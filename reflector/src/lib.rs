//! The client side of list and watch: reflector, store and informer over any source of lists and watches.
