package clients

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestAuth(t *testing.T) {
	t.Parallel()
	server := start(t, "--bcrypt-cost=4")
	open := server.client()
	ctx := bounded(t)
	as := func(name, password string) *clientv3.Client {
		t.Helper()
		return connect(t, clientv3.Config{
			Endpoints: []string{server.address()}, Username: name, Password: password,
		})
	}

	// A client with credentials can use a server without authentication (AU-2).
	put(t, as("nobody", "any"), "k/a", "v")

	_, err := open.AuthEnable(ctx)
	fails(t, err, rpctypes.ErrRootUserNotExist)
	must(open.UserAdd(ctx, "root", "secret"))(t)
	must(open.UserGrantRole(ctx, "root", "root"))(t)
	must(open.RoleAdd(ctx, "reader"))(t)
	must(open.RoleGrantPermission(ctx, "reader", "k/", clientv3.GetPrefixRangeEnd("k/"),
		clientv3.PermissionType(clientv3.PermRead)))(t)
	must(open.UserAdd(ctx, "alice", "wonder"))(t)
	must(open.UserGrantRole(ctx, "alice", "reader"))(t)
	must(open.AuthEnable(ctx))(t)

	_, err = open.Get(ctx, "k/a")
	fails(t, err, rpctypes.ErrUserEmpty)
	_, err = clientv3.New(clientv3.Config{
		Endpoints: []string{server.address()}, Username: "alice", Password: "wrong", DialTimeout: limit,
	})
	fails(t, err, rpctypes.ErrAuthFailed)

	root, alice := as("root", "secret"), as("alice", "wonder")
	status := must(root.AuthStatus(ctx))(t)
	equal(t, "enabled", status.Enabled, true)
	equalSlices(t, "users", must(root.UserList(ctx))(t).Users, []string{"alice", "root"})
	equalSlices(t, "roles", must(root.UserGet(ctx, "alice"))(t).Roles, []string{"reader"})
	permissions := must(root.RoleGet(ctx, "reader"))(t).Perm
	equal(t, "permission", string(permissions[0].Key)+string(permissions[0].RangeEnd), "k/k0")

	equal(t, "read", must(alice.Get(ctx, "k/", clientv3.WithPrefix()))(t).Count, 1)
	_, err = alice.Put(ctx, "k/a", "v")
	fails(t, err, rpctypes.ErrPermissionDenied)
	_, err = alice.Get(ctx, "other")
	fails(t, err, rpctypes.ErrPermissionDenied)
	_, err = alice.Txn(ctx).Then(clientv3.OpGet("k/a")).Else(clientv3.OpPut("k/a", "v")).Commit()
	fails(t, err, rpctypes.ErrPermissionDenied)
	_, err = alice.UserList(ctx)
	fails(t, err, rpctypes.ErrPermissionDenied)
	watch := created(t, ctx, alice, "k/a")
	denied := next(t, alice.Watch(ctx, "other"))
	if err := denied.Err(); err == nil || !strings.HasSuffix(err.Error(), rpctypes.ErrPermissionDenied.Error()) {
		t.Errorf("a watch without permission: %v", err)
	}
	put(t, root, "k/a", "new")
	equalSlices(t, "watched", events(t, watch, 1), []string{"PUT k/a=new@3"})

	// This invalidates the token. The client requests a new token automatically.
	must(root.UserChangePassword(ctx, "alice", "wonder"))(t)
	equal(t, "with a new token", must(alice.Get(ctx, "k/a"))(t).Count, 1)

	must(root.RoleRevokePermission(ctx, "reader", "k/", "k0"))(t)
	_, err = alice.Get(ctx, "k/a")
	fails(t, err, rpctypes.ErrPermissionDenied)
	must(root.UserRevokeRole(ctx, "alice", "reader"))(t)
	must(root.UserDelete(ctx, "alice"))(t)
	must(root.RoleDelete(ctx, "reader"))(t)
	must(root.AuthDisable(ctx))(t)
	put(t, open, "k/a", "v")
}
