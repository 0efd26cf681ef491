//! `etcdctl lock` and `etcdctl elect`. They implement their wait queues in the client with leases,
//! transactions and watches.

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    lock_is_held_until_the_command_ends, elect_prints_the_leader,
}

fn lock_is_held_until_the_command_ends(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        $ lock l echo held
        held
        # The lock was released.
        $ get l --prefix --keys-only
        $ lock l -- sh -c 'exit 3'
        ! Error: exit status 3
        ? 3
        # Without a command, the lock is held until etcdctl is stopped.
        & lock l
        l/%_%

        $ lock other echo held
        held
        ",
    );
}

fn elect_prints_the_leader(servers: &Servers) {
    Session::fresh(servers).replay(
        "
        & elect e me
        e/%key%
        me
        & elect -l e
        e/%key%
        me
        ",
    );
}
