package main

import (
	"bufio"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// writeFlowControl writes the flow schemas and priority levels that kube-apiserver creates and keeps, one in each line: those
// that administrators may change and those that are mandatory, in the order in which it creates them.
func writeFlowControl(out *bufio.Writer) {
	for _, object := range bootstrap.SuggestedPriorityLevelConfigurations {
		writeFlowObject(out, "PriorityLevelConfiguration", object, false)
	}
	for _, object := range bootstrap.SuggestedFlowSchemas {
		writeFlowObject(out, "FlowSchema", object, false)
	}
	for _, object := range bootstrap.MandatoryPriorityLevelConfigurations {
		writeFlowObject(out, "PriorityLevelConfiguration", object, true)
	}
	for _, object := range bootstrap.MandatoryFlowSchemas {
		writeFlowObject(out, "FlowSchema", object, true)
	}
}

func writeFlowObject(out *bufio.Writer, kind string, object any, mandatory bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		fatal("%v", err)
	}
	delete(content, "status")
	metadata := content["metadata"].(map[string]any)
	delete(metadata, "creationTimestamp")
	line, err := json.Marshal(map[string]any{"kind": kind, "mandatory": mandatory, "metadata": metadata, "spec": content["spec"]})
	if err != nil {
		fatal("%v", err)
	}
	fmt.Fprintf(out, "%s\n", line)
}
