package main

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
)

// The part of a strategy that warns of updates.
type warnsOnUpdate interface {
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string
}

// The part of a strategy that warns of creates and updates.
type warnsOnWrite interface {
	warnsOnUpdate
	PrepareForCreate(ctx context.Context, obj runtime.Object)
	WarningsOnCreate(ctx context.Context, obj runtime.Object) []string
}

// The strategies of a kind that warn; status may be nil.
type warners struct {
	main   warnsOnWrite
	status warnsOnUpdate
}

var warningKinds = map[string]warners{
	"CSIDriver":                    {csidriver.Strategy, nil},
	"CSIStorageCapacity":           {csistoragecapacity.Strategy, nil},
	"CronJob":                      {cronjob.Strategy, cronjob.StatusStrategy},
	"DaemonSet":                    {daemonset.Strategy, daemonset.StatusStrategy},
	"Deployment":                   {deployment.Strategy, deployment.StatusStrategy},
	"EndpointSlice":                {endpointslice.Strategy, nil},
	"Endpoints":                    {endpoint.Strategy, nil},
	"Ingress":                      {ingress.Strategy, ingress.StatusStrategy},
	"Job":                          {job.Strategy, job.StatusStrategy},
	"MutatingWebhookConfiguration": {mutatingwebhookconfiguration.Strategy, nil},
	"NetworkPolicy":                {networkpolicy.Strategy, nil},
	"Node":                         {node.Strategy, node.StatusStrategy},
	"PersistentVolume":             {persistentvolume.Strategy, persistentvolume.StatusStrategy},
	"PersistentVolumeClaim":        {persistentvolumeclaim.Strategy, persistentvolumeclaim.StatusStrategy},
	"Pod":                          {pod.Strategy, pod.StatusStrategy},
	"PodTemplate":                  {podtemplate.Strategy, nil},
	"ReplicaSet":                   {replicaset.Strategy, replicaset.StatusStrategy},
	"ReplicationController":        {replicationcontroller.Strategy, replicationcontroller.StatusStrategy},
	"ResourceQuota":                {resourcequota.Strategy, resourcequota.StatusStrategy},
	"ResourceSlice":                {resourceslice.Strategy, nil},
	"RuntimeClass":                 {runtimeclass.Strategy, nil},
	"Secret":                       {secret.Strategy, nil},
	"Service":                      {service.Strategy, service.StatusStrategy},
	"ServiceAccount":               {serviceaccount.Strategy, nil},
	"StatefulSet":                  {statefulset.Strategy, statefulset.StatusStrategy},
	"StorageClass":                 {storageclass.Strategy, nil},
	"ValidatingAdmissionPolicy":    {validatingadmissionpolicy.NewStrategy(nil, nil), nil},
}

// recorder keeps the warnings that strategies give while they prepare.
type recorder struct {
	texts []string
}

func (r *recorder) AddWarning(agent, text string) {
	r.texts = append(r.texts, text)
}

// warnings returns what a client is warned of.
func (c *testCase) warnings() []string {
	var named struct {
		Kind string `json:"kind"`
	}
	check(json.Unmarshal(c.Body, &named))
	of, ok := warningKinds[named.Kind]
	if !ok {
		fatal("%s: no strategy of %s", c.ID, named.Kind)
	}
	object := decode(c.Body)
	kind := object.GetObjectKind().GroupVersionKind()
	recorder := &recorder{texts: []string{}}
	ctx := warning.WithWarningRecorder(context.Background(), recorder)
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		APIGroup: kind.Group, APIVersion: kind.Version,
	})
	internal := toInternal(object)
	if c.Verb == "create" {
		of.main.PrepareForCreate(ctx, internal)
		return append(recorder.texts, of.main.WarningsOnCreate(ctx, internal)...)
	}
	old := toInternal(decode(c.Old))
	var rules warnsOnUpdate = of.main
	if c.Verb == "status" {
		rules = of.status
	}
	// What the store does before.
	accessor, err := meta.Accessor(internal)
	check(err)
	before, err := meta.Accessor(old)
	check(err)
	accessor.SetGeneration(before.GetGeneration())
	rules.PrepareForUpdate(ctx, internal, old)
	return append(recorder.texts, rules.WarningsOnUpdate(ctx, internal, old)...)
}
