// lacking needs a function that no host has.
__attribute__((import_module("env"), import_name("launch_missiles"))) void launch(void);

int main(void) {
	launch();
	return 0;
}
