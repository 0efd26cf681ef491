package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	reviewv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

const protobuf = "application/vnd.kubernetes.protobuf"

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "test"}},
		Data:       map[string]string{"color": "blue"},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(),
			},
		},
	}
}

func TestObjectsInBothEncodings(t *testing.T) {
	s := start(t)
	for _, media := range []string{"", protobuf, "application/json"} {
		t.Run(media, func(t *testing.T) {
			ctx := within(t)
			config := rest.CopyConfig(s.config)
			config.ContentType = media
			maps := must(kubernetes.NewForConfig(config))(t).CoreV1().ConfigMaps(namespace)

			created := must(maps.Create(ctx, configMap("a"), metav1.CreateOptions{}))(t)
			if created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() {
				t.Errorf("metadata: %v", created.ObjectMeta)
			}
			if _, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("a second create: %v", err)
			}
			dry := configMap("dry")
			must(maps.Create(ctx, dry, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
			if _, err := maps.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after a dry run: %v", err)
			}
			stale := created.DeepCopy()
			created.Data["color"] = "red"
			created.BinaryData = map[string][]byte{"bytes": {0, 255}}
			updated := must(maps.Update(ctx, created, metav1.UpdateOptions{}))(t)
			if updated.Data["color"] != "red" || string(updated.BinaryData["bytes"]) != "\x00\xff" {
				t.Errorf("after an update: %v", updated)
			}
			if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("a stale update: %v", err)
			}
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				current := stale
				stale = must(maps.Get(ctx, "a", metav1.GetOptions{}))(t)
				_, err := maps.Update(ctx, current, metav1.UpdateOptions{})
				return err
			})
			if err != nil {
				t.Error(err)
			}
			invalid := configMap("Not_A_Name")
			_, err = maps.Create(ctx, invalid, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "RFC 1123") {
				t.Errorf("an invalid name: %v", err)
			}
			uid := types.UID("another")
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
			if err := maps.Delete(ctx, "a", options); !apierrors.IsConflict(err) {
				t.Errorf("a precondition: %v", err)
			}
			if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a second delete: %v", err)
			}
			for _, name := range []string{"x", "y"} {
				must(maps.Create(ctx, configMap(name), metav1.CreateOptions{}))(t)
			}
			selected := metav1.ListOptions{LabelSelector: "app=test"}
			if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
				t.Error(err)
			}
			if rest := must(maps.List(ctx, selected))(t); len(rest.Items) != 0 {
				t.Errorf("after the deletion of all: %v", rest.Items)
			}
		})
	}
	// The encoding that client-go chooses by itself.
	if !slices.Contains(s.traffic.sent, protobuf) || !slices.Contains(s.traffic.answered, protobuf) {
		t.Errorf("no protobuf: sent %v, answered %v", s.traffic.sent, s.traffic.answered)
	}
}

func TestPatches(t *testing.T) {
	s := start(t)
	ctx, deployments := within(t), s.clientset(t).AppsV1().Deployments(namespace)
	must(deployments.Create(ctx, deployment("d"), metav1.CreateOptions{}))(t)
	image := func(name string) string {
		found := must(deployments.Get(ctx, "d", metav1.GetOptions{}))(t)
		for _, container := range found.Spec.Template.Spec.Containers {
			if container.Name == name {
				return container.Image
			}
		}
		return ""
	}
	for _, patch := range []struct {
		kind types.PatchType
		text string
	}{
		{types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"c2","image":"two"}]}}}}`},
		{types.JSONPatchType, `[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":3}]`},
		{types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`},
	} {
		patched, err := deployments.Patch(ctx, "d", patch.kind, []byte(patch.text), metav1.PatchOptions{FieldManager: "test"})
		if err != nil {
			t.Errorf("%s: %v", patch.kind, err)
			continue
		}
		if patch.kind == types.MergePatchType && (patched.Labels["a"] != "b" || *patched.Spec.Replicas != 3) {
			t.Errorf("after the patches: %v", patched)
		}
	}
	if image("c") != "image" || image("c2") != "two" {
		t.Error("the strategic merge patch has replaced the containers")
	}
	bad := []byte(`[{"op":"test","path":"/spec/replicas","value":7}]`)
	if _, err := deployments.Patch(ctx, "d", types.JSONPatchType, bad, metav1.PatchOptions{}); err == nil {
		t.Error("a test of a JSON patch has not failed")
	}
}

func TestSubresources(t *testing.T) {
	s := start(t)
	ctx, client := within(t), s.clientset(t)
	deployments := client.AppsV1().Deployments(namespace)
	created := must(deployments.Create(ctx, deployment("d"), metav1.CreateOptions{}))(t)
	created.Status.Replicas = 2
	created.Spec.Paused = true
	updated := must(deployments.UpdateStatus(ctx, created, metav1.UpdateOptions{}))(t)
	if updated.Status.Replicas != 2 || updated.Spec.Paused || updated.Generation != 1 {
		t.Errorf("status: %v", updated)
	}
	scale := must(deployments.GetScale(ctx, "d", metav1.GetOptions{}))(t)
	scale.Spec.Replicas = 5
	scale = must(deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}))(t)
	if found := must(deployments.Get(ctx, "d", metav1.GetOptions{}))(t); *found.Spec.Replicas != 5 || scale.Status.Replicas != 2 {
		t.Errorf("scale: %v %v", found.Spec.Replicas, scale)
	}

	pods := client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: podSpec()}
	pod = must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	onNode := metav1.ListOptions{FieldSelector: "spec.nodeName=n"}
	if found := must(pods.List(ctx, onNode))(t); len(found.Items) != 1 {
		t.Errorf("the pods of the node: %v", found.Items)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	if err := pods.EvictV1(ctx, eviction); err != nil {
		t.Error(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	must(accounts.Create(ctx, account, metav1.CreateOptions{}))(t)
	token := must(accounts.CreateToken(ctx, "a", &authv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	review := &authv1.TokenReview{Spec: authv1.TokenReviewSpec{Token: token.Status.Token}}
	review = must(client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{}))(t)
	if !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:default:a" {
		t.Errorf("review of the token: %v", review.Status)
	}
	access := &reviewv1.SelfSubjectAccessReview{Spec: reviewv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &reviewv1.ResourceAttributes{Verb: "get", Resource: "pods"},
	}}
	access = must(client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{}))(t)
	if !access.Status.Allowed {
		t.Errorf("review of the access: %v", access.Status)
	}
}

// A continue token expires with a compaction; the pager of client-go then reads the whole list.
func TestPagesAndCompaction(t *testing.T) {
	s := start(t)
	ctx, maps := within(t), s.clientset(t).CoreV1().ConfigMaps(namespace)
	for number := range 25 {
		must(maps.Create(ctx, configMap(fmt.Sprintf("m%02d", number)), metav1.CreateOptions{}))(t)
	}
	page := must(maps.List(ctx, metav1.ListOptions{Limit: 10}))(t)
	if len(page.Items) != 10 || *page.RemainingItemCount != 15 {
		t.Fatalf("the first page: %d items, %v left", len(page.Items), page.RemainingItemCount)
	}
	second := must(maps.List(ctx, metav1.ListOptions{Limit: 10, Continue: page.Continue}))(t)
	if second.Items[0].Name != "m10" || second.ResourceVersion != page.ResourceVersion {
		t.Errorf("the second page: %s at %s", second.Items[0].Name, second.ResourceVersion)
	}
	pages := 0
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		pages++
		if pages == 2 {
			must(maps.Create(ctx, configMap("late"), metav1.CreateOptions{}))(t)
			s.compact(t)
		}
		return maps.List(ctx, options)
	})
	list.PageSize = 10
	found, _, err := list.List(ctx, metav1.ListOptions{})
	if err != nil || pages != 3 {
		t.Fatalf("%d requests: %v", pages, err)
	}
	if items := found.(*corev1.ConfigMapList).Items; len(items) != 26 {
		t.Errorf("%d items after the compaction", len(items))
	}
	exact := metav1.ListOptions{ResourceVersion: page.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := maps.List(ctx, exact); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("an exact list of a compacted version: %v", err)
	}
}

// Watches with bookmarks, and of metadata only.
func TestWatches(t *testing.T) {
	s := start(t)
	ctx, maps := within(t), s.clientset(t).CoreV1().ConfigMaps(namespace)
	initial := true
	options := metav1.ListOptions{
		AllowWatchBookmarks:  true,
		SendInitialEvents:    &initial,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	must(maps.Create(ctx, configMap("a"), metav1.CreateOptions{}))(t)
	watcher := must(maps.Watch(ctx, options))(t)
	defer watcher.Stop()
	expect := func(kind watch.EventType, name string) metav1.Object {
		t.Helper()
		select {
		case event := <-watcher.ResultChan():
			object, ok := event.Object.(metav1.Object)
			if event.Type != kind || !ok || object.GetName() != name {
				t.Fatalf("expected %s %s: %v", kind, name, event)
			}
			return object
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
			return nil
		}
	}
	expect(watch.Added, "a")
	end := expect(watch.Bookmark, "")
	if end.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the end of the initial events: %v", end)
	}
	must(maps.Create(ctx, configMap("b"), metav1.CreateOptions{}))(t)
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(watch.Added, "b")
	expect(watch.Deleted, "a")

	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	partial := must(metadata.NewForConfig(s.config))(t).Resource(gvr).Namespace(namespace)
	if found := must(partial.Get(ctx, "b", metav1.GetOptions{}))(t); found.Labels["app"] != "test" {
		t.Errorf("metadata: %v", found)
	}
	watcher = must(partial.Watch(ctx, metav1.ListOptions{ResourceVersion: end.GetResourceVersion()}))(t)
	expect(watch.Added, "b")
	expect(watch.Deleted, "a")
}

// The recorder of events merges equal ones by a patch.
func TestEvents(t *testing.T) {
	s := start(t)
	ctx, client := within(t), s.clientset(t)
	created := must(client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("a"), metav1.CreateOptions{}))(t)
	events := client.CoreV1().Events(namespace)
	watcher := must(events.Watch(ctx, metav1.ListOptions{}))(t)
	defer watcher.Stop()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "test"})
	for range 3 {
		recorder.Eventf(created, corev1.EventTypeNormal, "Happened", "again")
	}
	for {
		select {
		case event := <-watcher.ResultChan():
			if found, ok := event.Object.(*corev1.Event); ok && found.Count == 3 {
				return
			}
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}
