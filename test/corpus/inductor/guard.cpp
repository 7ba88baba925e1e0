// A device guard for CUDA that does nothing and knows one stream, so that a PyTorch built without CUDA lets fake tensors be there
// and autograd follow them.
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::Stream;

struct OneDevice final : c10::impl::DeviceGuardImplInterface {
  Device one() const { return Device(DeviceType::CUDA, 0); }
  Stream only() const { return Stream(Stream::DEFAULT, one()); }
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return one(); }
  Device getDevice() const override { return one(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return only(); }
  Stream getDefaultStream(Device) const override { return only(); }
  Stream getNewStream(Device, int) const override { return only(); }
  Stream exchangeStream(Stream) const noexcept override { return only(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void **, const Stream &, DeviceIndex, c10::EventFlag) const override {}
  void block(void *, const Stream &) const override {}
  bool queryEvent(void *) const override { return true; }
  void destroyEvent(void *, DeviceIndex) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, OneDevice)
