package clients

import (
	"crypto/sha256"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := server.client()
	put(t, client, "k", "v")
	status := must(client.Status(bounded(t), server.address()))(t)
	equal(t, "leader", status.Leader, status.Header.MemberId)
	equal(t, "learner", status.IsLearner, false)
	equal(t, "errors", len(status.Errors), 0)
	if status.Version < "3.5" || status.RaftTerm < 1 || status.RaftIndex < 1 || status.DbSize < 1 {
		t.Errorf("status %+v", status)
	}
}

func TestMembersAndSync(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := server.client()
	ctx := bounded(t)
	members := must(client.MemberList(ctx))(t).Members
	equal(t, "members", len(members), 1)
	equal(t, "name", members[0].Name, "default")
	equalSlices(t, "client URLs", members[0].ClientURLs, []string{"http://" + server.address()})
	// After Sync, the client uses the URLs that the server advertises (CL-1).
	mustDo(t, client.Sync(ctx))
	equalSlices(t, "endpoints", client.Endpoints(), members[0].ClientURLs)
	put(t, client, "k", "v")
}

func TestHashKVDependsOnTheData(t *testing.T) {
	t.Parallel()
	one, two := start(t), start(t)
	a, b := one.client(), two.client()
	ctx := bounded(t)
	hash := func(server *server, client *clientv3.Client, revision int64) uint32 {
		t.Helper()
		return must(client.HashKV(ctx, server.address(), revision))(t).Hash
	}
	for _, client := range []*clientv3.Client{a, b} {
		put(t, client, "k", "1")
		put(t, client, "k", "2")
	}
	equal(t, "same data", hash(one, a, 0), hash(two, b, 0))
	put(t, a, "k", "3")
	equal(t, "at revision 3", hash(one, a, 3), hash(two, b, 3))
	if hash(one, a, 0) == hash(two, b, 0) {
		t.Error("different data, equal hash")
	}
}

func TestAlarmsAndQuota(t *testing.T) {
	t.Parallel()
	client := start(t, "--quota-backend-bytes=200000").client()
	ctx := bounded(t)
	value := string(make([]byte, 10_000))
	var err error
	for range 100 {
		if _, err = client.Put(ctx, "k", value); err != nil {
			break
		}
	}
	fails(t, err, rpctypes.ErrNoSpace)
	alarms := must(client.AlarmList(ctx))(t).Alarms
	equal(t, "alarms", len(alarms), 1)
	equal(t, "alarm", alarms[0].Alarm, etcdserverpb.AlarmType_NOSPACE)
	got := must(client.Get(ctx, "k"))(t)
	must(client.Delete(ctx, "k"))(t)

	must(client.Compact(ctx, got.Header.Revision+1, clientv3.WithCompactPhysical()))(t)
	must(client.Defragment(ctx, client.Endpoints()[0]))(t)
	must(client.AlarmDisarm(ctx, &clientv3.AlarmMember{}))(t)
	equal(t, "alarms after", len(must(client.AlarmList(ctx))(t).Alarms), 0)
	put(t, client, "k", "v")
}

// A snapshot ends with the hash of its content (MT-6).
func TestSnapshot(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	put(t, client, "k", "v")
	reader := must(client.Snapshot(bounded(t)))(t)
	defer reader.Close()
	all := must(io.ReadAll(reader))(t)
	equal(t, "size modulo a page", len(all)%512, sha256.Size)
	content, hash := all[:len(all)-sha256.Size], all[len(all)-sha256.Size:]
	equal(t, "hash", [sha256.Size]byte(hash), sha256.Sum256(content))
}

func TestMoveLeader(t *testing.T) {
	t.Parallel()
	client := start(t).client()
	_, err := client.MoveLeader(bounded(t), 99)
	fails(t, err, rpctypes.ErrBadLeaderTransferee)
}
