// What every component in C is linked with. Without this export the adapter puts its state behind the memory of the module, where
// malloc of Debian's wasi-libc does not expect it.
#include <stdlib.h>

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size)
{
	(void)old_size, (void)align; // malloc aligns to 16
	void *at = realloc(old, size);
	if (!at && size)
		abort();
	return at;
}
