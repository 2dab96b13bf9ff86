// Answers for Kubernetes' own code: reads one case of JSON a line, writes what the kubelet and the scheduler make of it.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"gopkg.in/inf.v0"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	_ "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/qos"

	_ "unsafe" // for go:linkname
)

// The eviction manager's ranking is not exported, and the manager itself would evict one pod in ten seconds.
//
//go:linkname rankMemoryPressure k8s.io/kubernetes/pkg/kubelet/eviction.rankMemoryPressure
func rankMemoryPressure(pods []*v1.Pod, stats func(pod *v1.Pod) (statsapi.PodStats, bool))

// Case is a node with its pods, and texts that may be quantities.
type Case struct {
	MemoryBytes int64     `json:"memory_bytes"`
	Pods        []Running `json:"pods"`
	Quantities  []string  `json:"quantities"`
}

// Running is a pod as it was submitted, and its working set; none where the kubelet has no statistics.
type Running struct {
	Pod             *v1.Pod `json:"pod"`
	WorkingSetBytes *uint64 `json:"working_set_bytes"`
}

// Answer has an entry for each pod and each text of the case.
type Answer struct {
	// By the container's name.
	OomScoreAdj []map[string]int `json:"oom_score_adj"`
	QosClass    []v1.PodQOSClass `json:"qos_class"`
	// What the scheduler counts.
	Requests []v1.ResourceList `json:"requests"`
	// Positions of the pods, first to be evicted first; those that rank alike share a group.
	EvictionOrder [][]int    `json:"eviction_order"`
	Quantities    []Quantity `json:"quantities"`
}

// Quantity is empty where the text is none.
type Quantity struct {
	Canonical string `json:"canonical"`
	// The exact value in nano-units, the finest that a quantity has.
	Nano string `json:"nano"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked Case
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if err := answers.Encode(answer(asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func answer(asked Case) Answer {
	var made Answer
	stats := map[*v1.Pod]statsapi.PodStats{}
	var pods []*v1.Pod
	for _, running := range asked.Pods {
		pod := running.Pod
		corev1.SetObjectDefaults_Pod(pod)
		pods = append(pods, pod)
		if running.WorkingSetBytes != nil {
			stats[pod] = statsapi.PodStats{Memory: &statsapi.MemoryStats{WorkingSetBytes: running.WorkingSetBytes}}
		}
		made.OomScoreAdj = append(made.OomScoreAdj, adjustments(pod, asked.MemoryBytes))
		made.QosClass = append(made.QosClass, v1qos.ComputePodQOS(pod))
		// Of a copy: it adds the overhead into the pod's own quantity where that is no int64, such as 10.625Gi.
		requests := resourcehelper.PodRequests(pod.DeepCopy(), resourcehelper.PodResourcesOptions{})
		made.Requests = append(made.Requests, requests)
	}
	made.EvictionOrder = evictionOrder(pods, stats)
	for _, text := range asked.Quantities {
		made.Quantities = append(made.Quantities, quantity(text))
	}
	return made
}

func adjustments(pod *v1.Pod, memoryBytes int64) map[string]int {
	made := map[string]int{}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			made[containers[i].Name] = qos.GetContainerOOMScoreAdjust(pod, &containers[i], memoryBytes)
		}
	}
	return made
}

func evictionOrder(pods []*v1.Pod, stats map[*v1.Pod]statsapi.PodStats) [][]int {
	positions := map[*v1.Pod]int{}
	for i, pod := range pods {
		positions[pod] = i
	}
	rank := func(pods ...*v1.Pod) []*v1.Pod {
		rankMemoryPressure(pods, func(pod *v1.Pod) (statsapi.PodStats, bool) {
			found, ok := stats[pod]
			return found, ok
		})
		return pods
	}
	var groups [][]int
	ranked := rank(append([]*v1.Pod{}, pods...)...)
	for i, pod := range ranked {
		// A pair that stays as it is, whichever comes first, ranks alike.
		if i > 0 && rank(pod, ranked[i-1])[0] == pod {
			groups[len(groups)-1] = append(groups[len(groups)-1], positions[pod])
		} else {
			groups = append(groups, []int{positions[pod]})
		}
	}
	return groups
}

func quantity(text string) Quantity {
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return Quantity{}
	}
	exact := parsed.DeepCopy()
	return Quantity{Canonical: parsed.String(), Nano: nano(exact)}
}

// nano is the value times 10^9, which is whole: a quantity is rounded up to nano-units when it is parsed.
func nano(exact resource.Quantity) string {
	value := exact.AsDec()
	return value.Mul(value, inf.NewDec(1_000_000_000, 0)).Round(value, 0, inf.RoundExact).String()
}
