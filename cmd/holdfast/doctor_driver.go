package main

import (
	"fmt"
	"os"

	"holdfast/internal/cuda"
	"holdfast/internal/cuda/native"
)

// driverAPIChecks asks libcuda itself: what it is, which devices it has, and whether it
// has what holdfast needs of it.
func driverAPIChecks(group, otherwise string) []check {
	path := findDriver()
	if path == "" {
		return []check{result(group, "libcuda.so.1", false, otherwise, "not found",
			"install the driver's user-space libraries, or use --gpu=soft")}
	}
	drv, err := native.Open(path)
	if err != nil {
		return []check{result(group, "libcuda.so.1", false, otherwise, err.Error(), "upgrade the NVIDIA driver")}
	}
	list := []check{{group, "libcuda.so.1", checkOK, path, ""}}
	if err := drv.Init(); err != nil {
		return append(list, result(group, "cuInit", false, otherwise, err.Error(),
			"see whether nvidia-smi works, and who may open /dev/nvidia*"))
	}
	v, err := drv.DriverVersion()
	if err != nil {
		return append(list, result(group, "CUDA version", false, otherwise, err.Error(), "reinstall the NVIDIA driver"))
	}
	list = append(list, check{group, "CUDA version", checkOK, fmt.Sprint(v), ""})
	list = append(list, deviceChecks(drv, group, otherwise)...)
	if _, err := drv.CheckpointState(os.Getpid()); err != nil {
		list = append(list, result(group, "cuCheckpointProcess*", false, otherwise, err.Error(),
			fmt.Sprintf("whole-process checkpoints need driver %d or newer", minDriver)))
	} else {
		list = append(list, check{group, "cuCheckpointProcess*", checkOK, "answers", ""})
	}
	return list
}

func deviceChecks(drv cuda.Driver, group, otherwise string) []check {
	n, err := drv.DeviceCount()
	if err != nil || n == 0 {
		return []check{result(group, "devices", false, otherwise, fmt.Sprintf("%d devices, %v", n, err),
			"see whether nvidia-smi lists a GPU")}
	}
	var list []check
	for i := range n {
		at := fmt.Sprintf("device %d", i)
		dev, err := drv.DeviceGet(i)
		if err != nil {
			list = append(list, result(group, at, false, otherwise, err.Error(), "see nvidia-smi"))
			continue
		}
		name, _ := drv.DeviceName(dev)
		uuid, _ := drv.DeviceUUID(dev)
		total, _ := drv.DeviceTotalMem(dev)
		list = append(list, check{group, at, checkOK, fmt.Sprintf("%s, %s, %v", name, bytesText(total), uuid), ""})
		for _, need := range []struct {
			attr cuda.Attribute
			what string
		}{
			{cuda.AttrVirtualMemory, "virtual memory API"},
			{cuda.AttrHandleTypeFD, "memory as descriptors"},
		} {
			v, err := drv.DeviceAttribute(need.attr, dev)
			if err != nil || v == 0 {
				list = append(list, result(group, at, false, otherwise, "no "+need.what,
					"this device's memory cannot be held (MIG or vGPU without it?)"))
			}
		}
	}
	return list
}
