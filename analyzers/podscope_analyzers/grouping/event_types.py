"""Events that grouping knows by their exact names."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.op_names import OpCategory, parse_op_name


class NodeType(IntEnum):
    """What an event is to grouping."""

    UNKNOWN = 0
    KERNEL_LAUNCH = 1
    KERNEL_EXECUTE = 2
    TF_OP = 3
    ITERATOR = 4
    OTHER = 5
    TRACE_CONTEXT = 6
    SESSION_RUN = 7
    FUNCTION_RUN = 8
    RUN_GRAPH = 9
    EAGER_EXECUTE = 10
    EXECUTOR_PROCESS = 11
    TF_DATA_RUN = 12
    LOOP = 13
    GET_NEXT = 14
    GET_NEXT_AS_OPTIONAL = 15
    BATCHING_SESSION_RUN = 16
    PROCESS_BATCH = 17
    TPU_EXECUTE = 18
    ENQUEUE_REQUEST = 19
    QUEUE_REQUEST = 20
    ENQUEUE_PROGRAM = 21
    ENQUEUE_CONTINUATION = 22
    COMPLETE_CALLBACKS = 23


IMPLICIT_ROOTS: Final = (
    NodeType.FUNCTION_RUN,
    NodeType.SESSION_RUN,
    NodeType.RUN_GRAPH,
    NodeType.EXECUTOR_PROCESS,
)
"""Roots that the framework makes: no user named them."""

REGION_START: Final = "ThreadpoolListener::StartRegion"
REGION_STOP: Final = "ThreadpoolListener::StopRegion"
REGION: Final = "ThreadpoolListener::Region"

_NAMES: Final[Mapping[str, NodeType]] = {
    "TraceContext": NodeType.TRACE_CONTEXT,
    "SessionRun": NodeType.SESSION_RUN,
    "FunctionRun": NodeType.FUNCTION_RUN,
    "RunGraph": NodeType.RUN_GRAPH,
    "EagerExecute": NodeType.EAGER_EXECUTE,
    "ExecutorState::Process": NodeType.EXECUTOR_PROCESS,
    "InstantiatedCapturedFunction::Run": NodeType.TF_DATA_RUN,
    "InstantiatedCapturedFunction::RunWithBorrowedArgs": NodeType.TF_DATA_RUN,
    "InstantiatedCapturedFunction::RunInstantiated": NodeType.TF_DATA_RUN,
    "InstantiatedCapturedFunction::RunAsync": NodeType.TF_DATA_RUN,
    "ParallelForOp": NodeType.LOOP,
    "ForeverOp": NodeType.LOOP,
    "WhileOp-EvalCond": NodeType.LOOP,
    "WhileOp-StartBody": NodeType.LOOP,
    "ForOp": NodeType.LOOP,
    "IteratorGetNextOp::DoCompute": NodeType.GET_NEXT,
    "IteratorGetNextAsOptionalOp::DoCompute": NodeType.GET_NEXT_AS_OPTIONAL,
    "BatchingSessionRun": NodeType.BATCHING_SESSION_RUN,
    "ProcessBatch": NodeType.PROCESS_BATCH,
    "OrbaxServing::ProcessBatch": NodeType.PROCESS_BATCH,
    "TpuExecuteOp": NodeType.TPU_EXECUTE,
    "EnqueueRequestLocked": NodeType.ENQUEUE_REQUEST,
    "RunProgramRequest": NodeType.QUEUE_REQUEST,
    "HostCallbackRequest": NodeType.QUEUE_REQUEST,
    "TransferH2DRequest": NodeType.QUEUE_REQUEST,
    "TransferPreprocessedH2DRequest": NodeType.QUEUE_REQUEST,
    "TransferD2HRequest": NodeType.QUEUE_REQUEST,
    "OnDeviceSendRequest": NodeType.QUEUE_REQUEST,
    "OnDeviceRecvRequest": NodeType.QUEUE_REQUEST,
    "OnDeviceSendRecvLocalRequest": NodeType.QUEUE_REQUEST,
    "CustomWait": NodeType.QUEUE_REQUEST,
    "OnDeviceSendRequestMulti": NodeType.QUEUE_REQUEST,
    "OnDeviceRecvRequestMulti": NodeType.QUEUE_REQUEST,
    "PjrtAsyncWait": NodeType.QUEUE_REQUEST,
    "DoEnqueueProgram": NodeType.ENQUEUE_PROGRAM,
    "DoEnqueueContinuationProgram": NodeType.ENQUEUE_CONTINUATION,
    "CompleteCallbacks": NodeType.COMPLETE_CALLBACKS,
    **dict.fromkeys(
        (
            "Iterator",
            "Iterator::Prefetch::Generator",
            "BrainSessionRun",
            "ConcatInputTensors",
            "MergeInputTensors",
            "ScheduleWithoutSplit",
            "ScheduleWithSplit",
            "ScheduleWithEagerSplit",
            "ASBSQueue::Schedule",
            "OrbaxServing::ConcatInputBuffers",
            "TfrtModelRun",
            "ServingModelRun",
            "WriteHbm",
            "ReadHbm",
            "tpu::System::Execute",
            "tpu::System::TransferToDevice=>IssueEvent",
            "tpu::System::TransferToDevice=>IssueEvent=>Done",
            "tpu::System::TransferFromDevice=>IssueEvent",
            "tpu::System::TransferFromDevice=>IssueEvent=>Done",
            "Linearize",
            "Delinearize",
            "TransferBufferFromDevice-FastPath",
        ),
        NodeType.OTHER,
    ),
}


def node_types(names: Sequence[str]) -> NDArray[np.uint8]:
    """Type of every name of a plane's event metadata, shape (m,).

    Names that are no known event may be operations of a framework.
    """
    types = np.zeros(len(names), np.uint8)
    for row, name in enumerate(names):
        known = _NAMES.get(name)
        if known is not None:
            types[row] = known
        elif ":" in name:
            category = parse_op_name(name).category
            if category == OpCategory.TENSORFLOW:
                types[row] = NodeType.TF_OP
            elif category == OpCategory.TF_DATA:
                types[row] = NodeType.ITERATOR
    return types
