"""Test of a gang's nodes and network, started by the launcher of a training: ``trn fabric`` submits it.

Each node shows its devices, EFA interfaces, lockable memory and shared volume; all ranks together measure all-reduce,
all-gather and reduce-scatter. Where a collective is slow, pairs of nodes tell which node is; where a rank is gone or
stays behind, its heartbeat tells. No SSH and no MPI.
"""
