//! `etcdctl auth`, `etcdctl user`, `etcdctl role`, and the permissions of `--user`.
//!
//! Not tested here: commands that etcd 3.5.16 permits to all users and 3.5.30 does not (member list,
//! compaction, endpoint status, leases).

use revstore_tests::etcdctl::Session;
use revstore_tests::on_every_server;
use revstore_tests::server::Servers;

on_every_server! {
    needs: [Etcdctl];
    user_commands_manage_users,
    role_commands_manage_roles_and_permissions,
    users_access_only_keys_with_permission,
    users_watch_only_keys_with_permission,
    administrative_commands_require_root,
}

fn user_commands_manage_users(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ auth status
        Authentication Status: false
        AuthRevision: 1
        $ auth status -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"authRevision":1}
        $ auth enable
        ! Error: etcdserver: root user does not exist
        ? 1
        $ user add root:secret
        User root created
        $ user add root:secret
        ! Error: etcdserver: user name already exists
        ? 1
        $ user add u --interactive=false
        < pw
        User u created
        $ user add v --new-user-password=pv
        User v created
        $ user add n --no-password
        User n created
        $ user list
        n
        root
        u
        v
        $ user list -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"users":["n","root","u","v"]}
        $ user get root
        User: root
        Roles:
        $ user passwd u --interactive=false
        < new
        Password updated
        $ user passwd x --interactive=false
        < new
        ! Error: etcdserver: user name not found
        ? 1
        $ user delete v
        User v deleted
        $ user delete v
        ! Error: etcdserver: user name not found
        ? 1
        $ auth status
        Authentication Status: false
        AuthRevision: 7
        $ auth disable
        Authentication Disabled
        "#,
    );
}

fn role_commands_manage_roles_and_permissions(servers: &Servers) {
    Session::fresh(servers).replay(
        r#"
        $ user add u:pw
        User u created
        $ role add r
        Role r created
        $ role add r
        ! Error: etcdserver: role name already exists
        ? 1
        $ role add root
        Role root created
        $ role list
        r
        root
        $ role grant-permission r read a c
        Role r updated
        $ role grant-permission r readwrite a c
        Role r updated
        $ role grant-permission r write k
        Role r updated
        $ role grant-permission r read p --prefix
        Role r updated
        $ role grant-permission r read z --from-key
        Role r updated
        $ role grant-permission r read b a
        ! Error: etcdserver: invalid auth management
        ? 1
        $ role grant-permission x read b
        ! Error: etcdserver: role name not found
        ? 1
        $ role get r
        Role r
        KV Read:
        	[a, c)
        	[p, q) (prefix p)
        	[z, <open ended>
        KV Write:
        	[a, c)
        	k
        $ role get r -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"perm":[{"permType":2,"key":"YQ==","range_end":"Yw=="},{"permType":1,"key":"aw=="},{"key":"cA==","range_end":"cQ=="},{"key":"eg==","range_end":"AA=="}]}
        $ role get x
        ! Error: etcdserver: role name not found
        ? 1
        $ role revoke-permission r k
        Permission of key k is revoked from role r
        $ role revoke-permission r k
        ! Error: etcdserver: permission is not granted to the role
        ? 1
        $ user grant-role u r
        Role r is granted to user u
        $ user grant-role u r
        Role r is granted to user u
        $ user grant-role u x
        ! Error: etcdserver: role name not found
        ? 1
        $ user grant-role x r
        ! Error: etcdserver: user name not found
        ? 1
        $ user get u
        User: u
        Roles: r
        $ user get u --detail
        User: u

        Role r
        KV Read:
        	[a, c)
        	[p, q) (prefix p)
        	[z, <open ended>
        KV Write:
        	[a, c)
        $ user get u -w json
        {"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":1,"raft_term":2},"roles":["r"]}
        $ user revoke-role u r
        Role r is revoked from user u
        $ user revoke-role u r
        ! Error: etcdserver: role is not granted to the user
        ? 1
        $ role delete r
        Role r deleted
        $ role delete r
        ! Error: etcdserver: role name not found
        ? 1
        "#,
    );
}

/// Starts a server with authentication enabled. The user `u` may read and write the keys from `a` to `c`,
/// without `c`.
fn enabled(servers: &Servers) -> Session {
    let session = Session::fresh(servers);
    session.replay(
        "
        $ user add root:secret
        User root created
        $ user add u:pw
        User u created
        $ role add r
        Role r created
        $ role grant-permission r readwrite a c
        Role r updated
        $ user grant-role u r
        Role r is granted to user u
        # etcdctl grants the role root to the user root if it is missing.
        $ auth enable
        Authentication Enabled
        ",
    );
    session
}

fn users_access_only_keys_with_permission(servers: &Servers) {
    enabled(servers).replay(
        r#"
        $ get a
        ! Error: etcdserver: user name is empty
        ? 1
        $ --user root:wrong get a
        ! Error: etcdserver: authentication failed, invalid user ID or password
        ? 2
        $ --user nobody:x get a
        ! Error: etcdserver: authentication failed, invalid user ID or password
        ? 2
        $ --user root:secret put secret s
        OK
        $ --user u:pw put a 1
        OK
        $ --user u:pw get a
        a
        1
        $ --user u --password pw get a
        a
        1
        $ --user u:pw get secret
        ! Error: etcdserver: permission denied
        ? 1
        $ --user u:pw put secret x
        ! Error: etcdserver: permission denied
        ? 1
        $ --user u:pw get '' --prefix
        ! Error: etcdserver: permission denied
        ? 1
        $ --user u:pw txn
        < value("secret") = "s"
        <
        < put a 2
        <
        < put a 3
        <
        ! Error: etcdserver: permission denied
        ? 1
        $ --user root:secret get secret
        secret
        s
        "#,
    );
}

fn users_watch_only_keys_with_permission(servers: &Servers) {
    enabled(servers).replay(
        "
        $ --user u:pw put a 1
        OK
        & --user u:pw watch a --rev=1
        PUT
        a
        1
        $ --user u:pw watch secret
        ! watch was canceled (rpc error: code = PermissionDenied desc = etcdserver: permission denied)
        ! Error: watch is canceled by the server
        ? 5
        $ watch a
        ! watch was canceled (rpc error: code = InvalidArgument desc = etcdserver: user name is empty)
        ! Error: watch is canceled by the server
        ? 5
        ",
    );
}

fn administrative_commands_require_root(servers: &Servers) {
    enabled(servers).replay(
        "
        $ --user u:pw user list
        ! Error: etcdserver: permission denied
        ? 1
        $ --user u:pw user get u
        User: u
        Roles: r
        $ --user u:pw role get r
        Role r
        KV Read:
        	[a, c)
        KV Write:
        	[a, c)
        $ --user u:pw role get x
        ! Error: etcdserver: permission denied
        ? 1
        $ --user u:pw endpoint hashkv
        ! Failed to get the hash of endpoint %address% (rpc error: code = Unknown desc = auth: permission denied)
        ! Error: rpc error: code = Unknown desc = auth: permission denied
        ? 1
        $ --user u:pw defrag
        ! Failed to defragment etcd member[%address%] (rpc error: code = Unknown desc = auth: permission denied)
        ? 1
        $ --user u:pw auth disable
        ! Error: etcdserver: permission denied
        ? 1
        $ --user root:secret user delete root
        ! Error: etcdserver: invalid auth management
        ? 1
        $ --user root:secret user revoke-role root root
        ! Error: etcdserver: invalid auth management
        ? 1
        $ --user root:secret role delete root
        ! Error: etcdserver: invalid auth management
        ? 1
        $ --user root:secret auth status
        Authentication Status: true
        AuthRevision: 8
        $ --user root:secret auth disable
        Authentication Disabled
        $ get secret
        $ --user root:secret get secret
        ",
    );
}
