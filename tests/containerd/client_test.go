package containerd

import (
	"context"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	events "github.com/containerd/containerd/api/services/events/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// call is a method of containerd's gRPC API. Tests are built with the tags of the binaries, which
// leave out the generated clients.
type call[Q, A any] func(ctx context.Context, request *Q) (*A, error)

func method[Q, A any](conn *grpc.ClientConn, name string) call[Q, A] {
	return func(ctx context.Context, request *Q) (*A, error) {
		answer := new(A)
		if err := conn.Invoke(ctx, "/containerd.services."+name, request, answer); err != nil {
			return nil, err
		}
		return answer, nil
	}
}

// tasksClient has the methods of the service of tasks.
type tasksClient struct {
	Create        call[tasks.CreateTaskRequest, tasks.CreateTaskResponse]
	Start         call[tasks.StartRequest, tasks.StartResponse]
	Delete        call[tasks.DeleteTaskRequest, tasks.DeleteResponse]
	DeleteProcess call[tasks.DeleteProcessRequest, tasks.DeleteResponse]
	Get           call[tasks.GetRequest, tasks.GetResponse]
	Kill          call[tasks.KillRequest, emptypb.Empty]
	Exec          call[tasks.ExecProcessRequest, emptypb.Empty]
	ResizePty     call[tasks.ResizePtyRequest, emptypb.Empty]
	CloseIO       call[tasks.CloseIORequest, emptypb.Empty]
	Pause         call[tasks.PauseTaskRequest, emptypb.Empty]
	Resume        call[tasks.ResumeTaskRequest, emptypb.Empty]
	ListPids      call[tasks.ListPidsRequest, tasks.ListPidsResponse]
	Checkpoint    call[tasks.CheckpointTaskRequest, tasks.CheckpointTaskResponse]
	Update        call[tasks.UpdateTaskRequest, emptypb.Empty]
	Metrics       call[tasks.MetricsRequest, tasks.MetricsResponse]
	Wait          call[tasks.WaitRequest, tasks.WaitResponse]
}

func tasksOf(c *grpc.ClientConn) tasksClient {
	const service = "tasks.v1.Tasks/"
	return tasksClient{
		Create:        method[tasks.CreateTaskRequest, tasks.CreateTaskResponse](c, service+"Create"),
		Start:         method[tasks.StartRequest, tasks.StartResponse](c, service+"Start"),
		Delete:        method[tasks.DeleteTaskRequest, tasks.DeleteResponse](c, service+"Delete"),
		DeleteProcess: method[tasks.DeleteProcessRequest, tasks.DeleteResponse](c, service+"DeleteProcess"),
		Get:           method[tasks.GetRequest, tasks.GetResponse](c, service+"Get"),
		Kill:          method[tasks.KillRequest, emptypb.Empty](c, service+"Kill"),
		Exec:          method[tasks.ExecProcessRequest, emptypb.Empty](c, service+"Exec"),
		ResizePty:     method[tasks.ResizePtyRequest, emptypb.Empty](c, service+"ResizePty"),
		CloseIO:       method[tasks.CloseIORequest, emptypb.Empty](c, service+"CloseIO"),
		Pause:         method[tasks.PauseTaskRequest, emptypb.Empty](c, service+"Pause"),
		Resume:        method[tasks.ResumeTaskRequest, emptypb.Empty](c, service+"Resume"),
		ListPids:      method[tasks.ListPidsRequest, tasks.ListPidsResponse](c, service+"ListPids"),
		Checkpoint:    method[tasks.CheckpointTaskRequest, tasks.CheckpointTaskResponse](c, service+"Checkpoint"),
		Update:        method[tasks.UpdateTaskRequest, emptypb.Empty](c, service+"Update"),
		Metrics:       method[tasks.MetricsRequest, tasks.MetricsResponse](c, service+"Metrics"),
		Wait:          method[tasks.WaitRequest, tasks.WaitResponse](c, service+"Wait"),
	}
}

func containerOf(c *grpc.ClientConn) call[containers.GetContainerRequest, containers.GetContainerResponse] {
	return method[containers.GetContainerRequest, containers.GetContainerResponse](c, "containers.v1.Containers/Get")
}

func mountsOf(c *grpc.ClientConn) call[snapshots.MountsRequest, snapshots.MountsResponse] {
	return method[snapshots.MountsRequest, snapshots.MountsResponse](c, "snapshots.v1.Snapshots/Mounts")
}

func publisherOf(c *grpc.ClientConn) call[events.PublishRequest, emptypb.Empty] {
	return method[events.PublishRequest, emptypb.Empty](c, "events.v1.Events/Publish")
}

// eventStream is what a subscription answers with.
type eventStream = grpc.GenericClientStream[events.SubscribeRequest, apitypes.Envelope]

func subscribe(ctx context.Context, c *grpc.ClientConn, request *events.SubscribeRequest) (*eventStream, error) {
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/containerd.services.events.v1.Events/Subscribe")
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil {
		return nil, err
	}
	return &eventStream{ClientStream: stream}, stream.CloseSend()
}
