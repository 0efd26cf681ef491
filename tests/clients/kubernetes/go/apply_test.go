package kubernetes

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Server-side apply with the types of client-go: conflicts, what a manager gives up, what it has applied, and status.
func TestTypedApply(t *testing.T) {
	s := start(t)
	ctx, client := within(t), s.clientset(t)
	one, two := metav1.ApplyOptions{FieldManager: "one"}, metav1.ApplyOptions{FieldManager: "two"}
	deployments := client.AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "d"}
	container := func(name string) *coreapply.ContainerApplyConfiguration {
		return coreapply.Container().WithName(name).WithImage("image")
	}
	config := func(replicas int32, containers ...*coreapply.ContainerApplyConfiguration) *appsapply.DeploymentApplyConfiguration {
		return appsapply.Deployment("d", namespace).WithSpec(appsapply.DeploymentSpec().
			WithReplicas(replicas).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).
				WithSpec(coreapply.PodSpec().WithContainers(containers...))))
	}
	applied := must(deployments.Apply(ctx, config(1, container("a"), container("b")), one))(t)
	if len(applied.Spec.Template.Spec.Containers) != 2 || applied.ManagedFields[0].Manager != "one" {
		t.Errorf("applied: %v", applied)
	}
	_, err := deployments.Apply(ctx, config(2, container("c")), two)
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Errorf("a conflict: %v", err)
	}
	two.Force = true
	applied = must(deployments.Apply(ctx, config(2, container("c")), two))(t)
	if *applied.Spec.Replicas != 2 || len(applied.Spec.Template.Spec.Containers) != 3 {
		t.Errorf("forced: %v", applied.Spec)
	}
	// What only this manager had is removed.
	applied = must(deployments.Apply(ctx, appsapply.Deployment("d", namespace), two))(t)
	if len(applied.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("given up: %v", applied.Spec.Template.Spec.Containers)
	}
	extracted := must(appsapply.ExtractDeployment(applied, "one"))(t)
	if found := len(extracted.Spec.Template.Spec.Containers); found != 2 {
		t.Errorf("%d containers of the first manager", found)
	}
	status := appsapply.Deployment("d", namespace).WithStatus(appsapply.DeploymentStatus().WithReplicas(3))
	applied = must(deployments.ApplyStatus(ctx, status, one))(t)
	if applied.Status.Replicas != 3 {
		t.Errorf("status: %v", applied.Status)
	}

	widgets := define(t, ctx, s)
	custom := must(widgets.Apply(ctx, "a", widget("a"), one))(t)
	if size, _, _ := unstructured.NestedInt64(custom.Object, "spec", "size"); size != 3 {
		t.Errorf("custom: %v", custom)
	}
}
