# Thin: meson does the work. `make demo` and `make check` also install what they need (Debian, as root).
BUILD := build

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@meson setup $(BUILD)

.PHONY: all
